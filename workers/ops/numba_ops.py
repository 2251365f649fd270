"""The operations on numpy arrays through this project's own CPU kernels. A row's bits never depend on the batch."""

import numpy as np
import torch

from workers.kernels.activation import add_inplace, silu_mul
from workers.kernels.embedding import embed
from workers.kernels.linear import PackedLinear, linear, pack_linear
from workers.kernels.norm import rms_norm
from workers.kernels.sampling import argmax_rows
from workers.ops.batch import Int32
from workers.ops.protocol import Float32, Int64


class NumbaOps:
    """`dtype` is that of the weights: bfloat16 halves what a decode step reads; sums are float32 in both cases."""

    def __init__(self, dtype: torch.dtype, num_threads: int) -> None:
        self._dtype = dtype
        self._num_threads = num_threads

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        return pack_linear(self._bits(weight), None if bias is None else bias.float().numpy())

    def table(self, weight: torch.Tensor) -> Float32:
        return self._bits(weight).copy()

    def vector(self, weight: torch.Tensor) -> Float32:
        taken: Float32 = weight.float().numpy().copy()
        return taken

    def _bits(self, weight: torch.Tensor) -> Float32:
        """float32, or the bits of bfloat16 as uint16, which the kernels know by its dtype."""
        weight = weight.to(self._dtype).contiguous()
        bits: Float32 = (weight.view(torch.uint16) if self._dtype == torch.bfloat16 else weight).numpy()
        return bits

    def buffer(self, num_rows: int, num_columns: int) -> Float32:
        return np.zeros((num_rows, num_columns), dtype=np.float32)

    def rows(self, x: Float32, num_rows: int) -> Float32:
        return x[:num_rows]

    def embed(self, tokens: Int32, table: Float32, first_token: int, out: Float32) -> None:
        embed(tokens, table, first_token, out)

    def rms_norm(self, x: Float32, weight: Float32, eps: float, out: Float32) -> None:
        rms_norm(x, weight, eps, out)

    def linear(self, x: Float32, packed: PackedLinear, out: Float32) -> None:
        linear(x, packed, out, self._num_threads)

    def silu_mul(self, gate_up: Float32, out: Float32) -> None:
        silu_mul(gate_up, out)

    def add(self, x: Float32, y: Float32) -> None:
        add_inplace(x, y)

    def take_rows(self, x: Float32, row_ids: Int32, out: Float32) -> None:
        np.take(x, row_ids, axis=0, out=out, mode="clip")  # other modes would buffer `out`

    def argmax_rows(self, x: Float32) -> tuple[Float32, Int64]:
        values, columns = np.empty(len(x), dtype=np.float32), np.empty(len(x), dtype=np.int64)
        argmax_rows(x, values, columns)
        return values, columns

    def to_host(self, x: Float32) -> Float32:
        return x

    def from_host(self, x: Float32) -> Float32:
        return x
