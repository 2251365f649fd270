"""A layer on the CPU kernels in two calls: the bits of the single operations without most of the cost of calling
them.
"""

from workers.kernels.checks import KernelInputError
from workers.kernels.linear import PackedLinear
from workers.model.block import Buffers
from workers.ops.batch import Batch
from workers.ops.numba_attention import NO_NORM, Array, NumbaAttention
from workers.ops.numba_layer import attention_half, feed_forward_half
from workers.weights.shard_weights import LayerWeights


class NumbaBlock:
    """Bound to the pool of `attention`. `weight` is the element type of packed weights, "uint16" or "float32"."""

    def __init__(self, attention: NumbaAttention, eps: float, weight: str) -> None:
        self._attention = attention
        self._eps = eps
        self._attention_half = attention_half(weight, attention.pool.dtype.name)
        self._feed_forward_half = feed_forward_half(weight)

    def attend(
        self, number: int, layer: LayerWeights[Array, PackedLinear], batch: Batch[Array], cut: Buffers[Array]
    ) -> None:
        """Raises KernelInputError when a row's position, page or table is out of bounds."""
        attention, norms = self._attention, layer.head_norms
        heads = attention.heads
        bad_row = self._attention_half(
            number == 0,
            cut.x,
            cut.h,
            layer.attention_norm,
            self._eps,
            layer.qkv.data,
            layer.qkv.bias,
            cut.qkv,
            attention.cos,
            attention.sin,
            batch.positions,
            batch.page_ids,
            attention.pool,
            number,
            cut.q.reshape(batch.num_rows, heads.num_query_heads, heads.head_dim),
            heads.num_kv_heads,
            heads.page_size,
            NO_NORM if norms.query is None else norms.query,
            NO_NORM if norms.key is None else norms.key,
            batch.row_tables,
            batch.page_tables,
            heads.scale,
            cut.attended,
            layer.o.data,
            layer.o.bias,
        )
        if bad_row >= 0:
            raise KernelInputError(f"row {bad_row} has a position, page or table out of bounds")

    def feed_forward(self, layer: LayerWeights[Array, PackedLinear], cut: Buffers[Array]) -> None:
        gate_up, down = layer.gate_up, layer.down
        self._feed_forward_half(
            cut.x,
            cut.h,
            layer.mlp_norm,
            self._eps,
            gate_up.data,
            gate_up.bias,
            cut.gate_up,
            cut.mlp,
            down.data,
            down.bias,
        )
