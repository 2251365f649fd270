"""Attention by this project's own CPU kernels: pages are read in place, in logical order.

The pool is [num_pages, num_layers, 2 * Hkv * page_size * D]: inside a page and layer the keys [Hkv, D, page_size], so
that 16 slots are one vector, then the values [Hkv, page_size, D].
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from workers.kernels.attention import attend
from workers.kernels.rope import rope_write
from workers.ops.attention import HeadNorms, HeadShape
from workers.ops.batch import Batch
from workers.ops.protocol import Float32

Array = npt.NDArray[Any]
Pool = npt.NDArray[np.float32] | npt.NDArray[np.uint16]

NO_NORM = np.empty(0, dtype=np.float32)


def make_pool(num_pages: int, num_layers: int, heads: HeadShape, kv_dtype: str) -> Pool:
    """A pool of float32, or of uint16 that hold bfloat16; pages cost memory only once they are written."""
    shape = (num_pages, num_layers, 2 * heads.num_kv_heads * heads.page_size * heads.head_dim)
    return np.zeros(shape, np.uint16) if kv_dtype == "bfloat16" else np.zeros(shape, np.float32)


class NumbaAttention:
    """Bound to one pool. Cosines and sines are [positions, D / 2]."""

    def __init__(self, pool: Pool, heads: HeadShape, cos: Float32, sin: Float32, num_threads: int) -> None:
        self.pool = pool
        self.heads = heads
        self.cos = np.ascontiguousarray(cos)
        self.sin = np.ascontiguousarray(sin)
        self._num_threads = num_threads

    def place(self, batch: Batch[Array]) -> Batch[Array]:
        return batch

    def rope_write(self, qkv: Array, batch: Batch[Array], layer: int, norms: HeadNorms[Array], q_out: Array) -> None:
        heads = self.heads
        rope_write(
            qkv,
            self.cos,
            self.sin,
            batch.positions,
            batch.page_ids,
            self.pool,
            layer,
            q_out.reshape(batch.num_rows, heads.num_query_heads, heads.head_dim),
            heads.num_kv_heads,
            heads.page_size,
            NO_NORM if norms.query is None else norms.query,
            NO_NORM if norms.key is None else norms.key,
            norms.eps,
        )

    def attend(self, q: Array, batch: Batch[Array], layer: int, out: Array) -> None:
        heads = self.heads
        attend(
            q.reshape(batch.num_rows, heads.num_query_heads, heads.head_dim),
            self.pool,
            layer,
            batch.row_tables,
            batch.positions,
            batch.page_tables,
            heads.num_kv_heads,
            heads.page_size,
            heads.scale,
            out,
            self._num_threads,
        )
