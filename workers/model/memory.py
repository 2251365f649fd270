"""How many bytes a rank needs, from the config alone: to size a pool and to refuse one that does not fit, before
loading.
"""

from dataclasses import dataclass

from workers.model.config import ModelConfig
from workers.model.partition import Partition, partition

_DTYPE_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBytes:
    """`weights` of one rank in all; `page` of one KV page of this rank (ranks with more KV heads have larger ones)."""

    rank: int
    weights: int
    page: int

    def total(self, num_pages: int, arena_pages: int) -> int:
        """With a full pool and a full arena."""
        return self.weights + (num_pages + arena_pages) * self.page


def rank_bytes(
    config: ModelConfig, world_size: int, *, page_size: int, dtype: str, kv_dtype: str
) -> tuple[RankBytes, ...]:
    """One entry a rank, in rank order. Raises `CannotPartition`."""
    return tuple(
        RankBytes(
            rank=part.rank,
            weights=_weight_bytes(config, part, _DTYPE_BYTES[dtype]),
            page=2 * config.num_layers * part.kv_heads.size * page_size * config.head_dim * _DTYPE_BYTES[kv_dtype],
        )
        for part in partition(config, world_size)
    )


def _weight_bytes(config: ModelConfig, part: Partition, element: int) -> int:
    """Embedding and head are two copies even when tied: they are laid out differently."""
    hidden = config.hidden_size
    attention_columns = 2 * (part.query_heads.size + part.kv_heads.size) * config.head_dim
    layer = hidden * (attention_columns + 3 * part.mlp.size)
    biases_and_norms = 4 * (2 * hidden + 2 * part.mlp.size + attention_columns + 2 * hidden)
    embeddings = 2 * part.vocab.size * hidden
    return config.num_layers * (layer * element + biases_and_norms) + embeddings * element + 4 * hidden
