"""What a rank computes of one layer between two sums over ranks, and the arrays it computes in.

After `attend` and after `feed_forward` the caller sums `h` over ranks; the next call adds that sum to the residual
stream.
"""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from workers.ops.attention import Attention
from workers.ops.batch import Batch
from workers.ops.protocol import Ops
from workers.weights.shard_weights import LayerWeights

A = TypeVar("A")
L = TypeVar("L")


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers(Generic[A]):
    """Arrays of M rows: the residual stream `x`, what is to be added to it `h`, and what lies between."""

    x: A
    h: A
    qkv: A
    q: A
    attended: A
    gate_up: A
    mlp: A


class Block(Protocol[A, L]):
    """The two halves of a layer; `number` counts layers from 0."""

    def attend(self, number: int, layer: LayerWeights[A, L], batch: Batch[A], cut: Buffers[A]) -> None:
        """x += h, but not in layer 0; then h = this rank's part of attention over norm(x). Writes the rows' KV."""
        ...

    def feed_forward(self, layer: LayerWeights[A, L], cut: Buffers[A]) -> None:
        """x += h; then h = this rank's part of the MLP over norm(x)."""
        ...


class PlainBlock(Generic[A, L]):
    """One operation after the other, on any backend."""

    def __init__(self, ops: Ops[A, L], attention: Attention[A], eps: float) -> None:
        self._ops = ops
        self._attention = attention
        self._eps = eps

    def attend(self, number: int, layer: LayerWeights[A, L], batch: Batch[A], cut: Buffers[A]) -> None:
        ops = self._ops
        if number > 0:
            ops.add(cut.x, cut.h)
        ops.rms_norm(cut.x, layer.attention_norm, self._eps, cut.h)
        ops.linear(cut.h, layer.qkv, cut.qkv)
        self._attention.rope_write(cut.qkv, batch, number, layer.head_norms, cut.q)
        self._attention.attend(cut.q, batch, number, cut.attended)
        ops.linear(cut.attended, layer.o, cut.h)

    def feed_forward(self, layer: LayerWeights[A, L], cut: Buffers[A]) -> None:
        ops = self._ops
        ops.add(cut.x, cut.h)
        ops.rms_norm(cut.x, layer.mlp_norm, self._eps, cut.h)
        ops.linear(cut.h, layer.gate_up, cut.gate_up)
        ops.silu_mul(cut.gate_up, cut.mlp)
        ops.linear(cut.mlp, layer.down, cut.h)
