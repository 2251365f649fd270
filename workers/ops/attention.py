"""Attention over a paged KV shard, behind one small protocol.

An implementation is bound to one rank's KV pool and rotary tables. For every layer of every step the model calls
`rope_write`, then `attend`. Implementations: numba (CPU, in place over pages), sdpa (torch, gathers pages; the plain
reference), flash (flash-attn's paged calls on CUDA).
"""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from workers.ops.batch import Batch, Int32

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """A rank's heads. `num_query_heads` is a multiple of `num_kv_heads`. Scores are scaled by head_dim ** -0.5."""

    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int

    @property
    def qkv_columns(self) -> int:
        return (self.num_query_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def query_columns(self) -> int:
        return self.num_query_heads * self.head_dim

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorms(Generic[A]):
    """Qwen3's norms of each query and key head, weights [head_dim]; both are None in models without them."""

    query: A | None
    key: A | None
    eps: float


class Attention(Protocol[A]):
    """Bound to one KV pool. A row attends to positions [0, its own] of its sequence."""

    def place(self, batch: Batch[Int32]) -> Batch[A]:
        """The batch on this backend's array type, valid for one step."""
        ...

    def rope_write(self, qkv: A, batch: Batch[A], layer: int, norms: HeadNorms[A], q_out: A) -> None:
        """Norm (if any) and rotate q and k of qkv [M, (Hq + 2 Hkv) D]; write k and v to their pages, q to q_out [M,
        Hq D].
        """
        ...

    def attend(self, q: A, batch: Batch[A], layer: int, out: A) -> None:
        """out [M, Hq D] of q [M, Hq D], after `rope_write` of the same layer."""
        ...
