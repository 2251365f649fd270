"""One rank's weights, in the layout its backend wants. `A` is the array type, `L` a packed linear."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from workers.ops.attention import HeadNorms

A = TypeVar("A")
L = TypeVar("L")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights(Generic[A, L]):
    """`qkv` and `gate_up` are merged linears over this rank's heads and columns; `o` and `down` give partial sums."""

    attention_norm: A
    qkv: L
    head_norms: HeadNorms[A]
    o: L
    mlp_norm: A
    gate_up: L
    down: L


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWeights(Generic[A, L]):
    """`embedding` and `head` hold this rank's vocabulary."""

    embedding: A
    layers: tuple[LayerWeights[A, L], ...]
    final_norm: A
    head: L
