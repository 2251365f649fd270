"""Rows of a vocabulary shard by token."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types

from workers.kernels.checks import BF16, F32, I32, KernelInputError, check
from workers.kernels.compile import kernel
from workers.kernels.simd import address, load_first, load_first_bf16, splat, store_first


def _make_kernel(element: Any, load_some: Any, element_bytes: int) -> Any:
    # Weights may lie in a read-only file mapping.
    table_type = types.Array(element, 2, "C", readonly=True)

    @kernel(types.void(types.int32[::1], table_type, types.int64, types.float32[:, ::1]))
    def gather(tokens, table, first_token, out):  # type: ignore[no-untyped-def]
        num_local, width = table.shape
        for m in range(tokens.size):
            row = np.int64(tokens[m]) - first_token
            for i in range(0, width, 16):
                lanes = min(16, width - i)
                values = splat(np.float32(0))
                if 0 <= row < num_local:
                    values = load_some(address(table) + (row * width + i) * element_bytes, lanes)
                store_first(address(out) + (m * width + i) * 4, values, lanes)

    return gather


_gather_bf16 = _make_kernel(types.uint16, load_first_bf16, 2)
_gather_f32 = _make_kernel(types.float32, load_first, 4)


def embed(tokens: npt.NDArray[Any], table: npt.NDArray[Any], first_token: int, out: npt.NDArray[Any]) -> None:
    """out [M, H] = table[tokens - first_token], zeros for tokens outside this shard's rows [first, first + V_local).

    `table` [V_local, H] is uint16 (bf16 bits) or float32. Raises KernelInputError.
    """
    num_rows, width = out.shape
    check("out", out, F32, (num_rows, width))
    check("tokens", tokens, I32, (num_rows,))
    if table.dtype not in (F32, BF16):
        raise KernelInputError(f"table has dtype {table.dtype}; it must be float32 or uint16 (bf16 bits)")
    check("table", table, table.dtype, (table.shape[0], width))
    gather = _gather_f32 if table.dtype == F32 else _gather_bf16
    gather(tokens, table, first_token, out)
