"""Which heads, MLP columns and vocabulary each tensor-parallel rank holds. Pure arithmetic, the same on every rank.

Heads: KV heads with their query heads are dealt whole, by largest remainder (3 KV heads on 2 ranks: 2 + 1). With more
ranks than KV heads a KV head is replicated on several ranks, which split its query heads. MLP columns and vocabulary:
near-equal ranges, in multiples of 16 where the sizes allow it. A rank with fewer heads does not take more columns: the
ranks meet after the attention and again after the MLP, so what one saves in the first half of a layer it cannot spend
in the second. All ranges are half-open and, in rank order, cover everything without a gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.errors import CannotPartition
from workers.model.config import ModelConfig

# Lanes of a vector register: kernels work on so many output columns at once.
LANES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Half-open [start, end)."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One rank's share. `query_heads` is a multiple of `kv_heads`; a replicated KV head appears in several ranks."""

    rank: int
    world_size: int
    query_heads: Span
    kv_heads: Span
    mlp: Span
    vocab: Span


def partition(config: ModelConfig, world_size: int) -> tuple[Partition, ...]:
    """The shares of all ranks, in rank order. Raises `CannotPartition` outside 1 <= world_size <= query heads."""
    if not 1 <= world_size <= config.num_heads:
        raise CannotPartition(
            f"tensor parallel size {world_size} is not between 1 and {config.num_heads}, the query heads of this model"
        )
    heads = _deal_heads(config, world_size)
    mlp = _ranges(_near_equal(config.intermediate_size, world_size))
    vocab = _ranges(_near_equal(config.vocab_size, world_size))
    return tuple(
        Partition(rank=rank, world_size=world_size, query_heads=queries, kv_heads=kv, mlp=mlp[rank], vocab=vocab[rank])
        for rank, (queries, kv) in enumerate(heads)
    )


def _deal_heads(config: ModelConfig, world_size: int) -> list[tuple[Span, Span]]:
    per_kv = config.queries_per_kv_head
    if world_size <= config.num_kv_heads:
        kv_ranges = _ranges(_even(config.num_kv_heads, world_size))
        return [(Span(start=kv.start * per_kv, end=kv.end * per_kv), kv) for kv in kv_ranges]
    dealt = []
    for kv_head, num_ranks in enumerate(_even(world_size, config.num_kv_heads)):
        kv = Span(start=kv_head, end=kv_head + 1)
        first = kv_head * per_kv
        for queries in _ranges(_even(per_kv, num_ranks)):
            dealt.append((Span(start=first + queries.start, end=first + queries.end), kv))
    return dealt


def _even(total: int, num_parts: int) -> list[int]:
    """Largest remainder of equal quotas: the first parts take one more."""
    return [total // num_parts + (part < total % num_parts) for part in range(num_parts)]


def _near_equal(total: int, num_parts: int) -> list[int]:
    """Parts in units of `LANES`, or of 1 where `total` is too small for that; the last takes what is no whole unit."""
    unit = LANES if total // LANES >= num_parts else 1
    units, rest = divmod(total, unit)
    if units < num_parts:
        raise CannotPartition(f"{total} columns cannot be dealt to {num_parts} ranks; use fewer ranks")
    sizes = [part * unit for part in _even(units, num_parts)]
    sizes[-1] += rest
    return sizes


def _ranges(sizes: Sequence[int]) -> list[Span]:
    spans, start = [], 0
    for size in sizes:
        spans.append(Span(start=start, end=start + size))
        start += size
    return spans
