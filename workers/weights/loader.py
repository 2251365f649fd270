"""From a model folder to one rank's weights: slices, merges q,k,v and gate,up, packs. Never holds the whole model."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import torch

from workers.model.config import ModelConfig
from workers.model.partition import Partition, Span
from workers.ops.attention import HeadNorms
from workers.ops.protocol import Ops
from workers.weights.checkpoint import Checkpoint
from workers.weights.shard_weights import LayerWeights, ShardWeights

A = TypeVar("A")
L = TypeVar("L")

# (tensors read, tensors in all)
Progress = Callable[[int, int], None]


def load_shard(
    model_dir: str | Path,
    config: ModelConfig,
    part: Partition,
    ops: Ops[A, L],
    progress: Progress | None = None,
) -> ShardWeights[A, L]:
    """Read this rank's share. Raises `BrokenModel`."""
    with Checkpoint(model_dir) as checkpoint:
        return _Loader(checkpoint, config, part, ops, progress).load()


class _Loader(Generic[A, L]):
    def __init__(
        self,
        checkpoint: Checkpoint,
        config: ModelConfig,
        part: Partition,
        ops: Ops[A, L],
        progress: Progress | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self._part = part
        self._ops = ops
        self._progress = progress
        self._num_read = 0
        self._num_tensors = _num_tensors(config)

    def load(self) -> ShardWeights[A, L]:
        config, ops, vocab = self._config, self._ops, self._part.vocab
        shape = (config.vocab_size, config.hidden_size)
        embedding = self._read("model.embed_tokens.weight", shape, rows=vocab)
        table = ops.table(embedding)
        layers = tuple(self._layer(number) for number in range(config.num_layers))
        norm = ops.vector(self._read("model.norm.weight", (config.hidden_size,)))
        head = embedding if config.tied_embeddings else self._read("lm_head.weight", shape, rows=vocab)
        return ShardWeights(embedding=table, layers=layers, final_norm=norm, head=ops.pack(head, None))

    def _layer(self, number: int) -> LayerWeights[A, L]:
        config, ops = self._config, self._ops
        prefix = f"model.layers.{number}."
        hidden = (config.hidden_size,)
        return LayerWeights(
            attention_norm=ops.vector(self._read(prefix + "input_layernorm.weight", hidden)),
            qkv=self._qkv(prefix + "self_attn."),
            head_norms=self._head_norms(prefix + "self_attn."),
            o=self._o(prefix + "self_attn.o_proj"),
            mlp_norm=ops.vector(self._read(prefix + "post_attention_layernorm.weight", hidden)),
            gate_up=self._gate_up(prefix + "mlp."),
            down=self._down(prefix + "mlp.down_proj"),
        )

    def _qkv(self, prefix: str) -> L:
        config, part = self._config, self._part
        queries = (prefix + "q_proj", config.num_heads, part.query_heads)
        keys = (prefix + "k_proj", config.num_kv_heads, part.kv_heads)
        values = (prefix + "v_proj", config.num_kv_heads, part.kv_heads)
        projections = [
            (name, num_heads * config.head_dim, _scaled(span, config.head_dim))
            for name, num_heads, span in (queries, keys, values)
        ]
        return self._merged(projections, bias=config.qkv_bias)

    def _gate_up(self, prefix: str) -> L:
        config, span = self._config, self._part.mlp
        projections = [(prefix + name, config.intermediate_size, span) for name in ("gate_proj", "up_proj")]
        return self._merged(projections, bias=config.mlp_bias)

    def _merged(self, projections: list[tuple[str, int, Span]], *, bias: bool) -> L:
        """Column-parallel linears (name, outputs in all, this rank's outputs) as one."""
        hidden = self._config.hidden_size
        weights = [self._read(name + ".weight", (size, hidden), rows=span) for name, size, span in projections]
        biases = [self._read(name + ".bias", (size,), rows=span) for name, size, span in projections] if bias else []
        return self._ops.pack(torch.cat(weights), torch.cat(biases) if bias else None)

    def _o(self, name: str) -> L:
        config = self._config
        columns = _scaled(self._part.query_heads, config.head_dim)
        return self._row_parallel(name, config.num_heads * config.head_dim, columns, bias=config.o_bias)

    def _down(self, name: str) -> L:
        return self._row_parallel(name, self._config.intermediate_size, self._part.mlp, bias=self._config.mlp_bias)

    def _row_parallel(self, name: str, size: int, columns: Span, *, bias: bool) -> L:
        hidden = self._config.hidden_size
        weight = self._read(name + ".weight", (hidden, size), columns=columns)
        added = self._read(name + ".bias", (hidden,)) if bias else None
        # The results of all ranks are summed: the bias must enter once.
        return self._ops.pack(weight.contiguous(), added if self._part.rank == 0 else None)

    def _head_norms(self, prefix: str) -> HeadNorms[A]:
        query = key = None
        if self._config.qk_norm:
            shape = (self._config.head_dim,)
            query = self._ops.vector(self._read(prefix + "q_norm.weight", shape))
            key = self._ops.vector(self._read(prefix + "k_norm.weight", shape))
        return HeadNorms(query=query, key=key, eps=self._config.rms_eps)

    def _read(
        self, name: str, shape: tuple[int, ...], *, rows: Span | None = None, columns: Span | None = None
    ) -> torch.Tensor:
        tensor = self._checkpoint.read(name, shape, rows=rows, columns=columns)
        self._num_read += 1
        if self._progress is not None:
            self._progress(self._num_read, self._num_tensors)
        return tensor


def _scaled(span: Span, factor: int) -> Span:
    return Span(start=span.start * factor, end=span.end * factor)


def _num_tensors(config: ModelConfig) -> int:
    a_layer = 9 + 3 * config.qkv_bias + config.o_bias + 3 * config.mlp_bias + 2 * config.qk_norm
    return config.num_layers * a_layer + 2 + (not config.tied_embeddings)
