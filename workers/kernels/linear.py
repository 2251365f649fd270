"""Linear layers: float32 rows times bf16 or float32 weights, float32 sums, a row's bits independent of the other rows.

    out[m, n] = (sum over k, in order, of x[m, k] * weight[n, k]) + bias[n]

Weights are packed once into panels of a few output columns, k by k, so that a decode step streams them from memory
exactly once and prefill finds each panel in the cache. bf16 weights are widened in registers; activations are never
rounded.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.kernels.checks import BF16, F32, KernelInputError, check
from workers.kernels.compile import kernel, native_lanes, part, tile_part
from workers.kernels.linear_team import multiply_with_team
from workers.kernels.simd import address, load, load_first, stack, store_first, store_i64
from workers.kernels.tile import TileShape, make_tile

PANEL = 2 * native_lanes()
X_BLOCK_BYTES = 1 << 20
_WORTH_A_TEAM = 1 << 17  # multiplications; below, waking a thread takes longer than the product


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """`data` [ceil(N / PANEL), K, PANEL]: uint16 pairs of bf16 columns (j, j + PANEL / 2), or float32. Zeros fill the
    last panel. `bias` [N] float32, or empty.
    """

    data: npt.NDArray[Any]
    in_features: int
    out_features: int
    bias: npt.NDArray[np.float32]


def pack_linear(weight: npt.NDArray[Any], bias: npt.NDArray[np.float32] | None = None) -> PackedLinear:
    """Pack `weight` [N, K], uint16 (bf16 bits) or float32, and an optional `bias` [N]. Copies; raises
    KernelInputError."""
    if weight.ndim != 2 or 0 in weight.shape:
        raise KernelInputError(f"weight has shape {weight.shape}; it must be [N, K] with N, K >= 1")
    if weight.dtype not in (BF16, F32):
        raise KernelInputError(f"weight has dtype {weight.dtype}; it must be uint16 (bf16 bits) or float32")
    num_out, num_in = weight.shape
    if bias is None:
        bias = np.empty(0, np.float32)
    elif bias.shape != (num_out,):
        raise KernelInputError(f"bias has shape {bias.shape}; it must be ({num_out},)")
    num_panels = -(-num_out // PANEL)
    data = np.empty((num_panels, num_in, PANEL), weight.dtype)
    for panel in range(num_panels):
        columns = weight[panel * PANEL : (panel + 1) * PANEL].T
        if columns.shape[1] < PANEL:
            columns = np.pad(columns, ((0, 0), (0, PANEL - columns.shape[1])))
        if weight.dtype == BF16:
            half = PANEL // 2
            data[panel, :, 0::2], data[panel, :, 1::2] = columns[:, :half], columns[:, half:]
        else:
            data[panel] = columns
    return PackedLinear(data, num_in, num_out, np.array(bias, np.float32))


@part
def _store_valid(tile, c, rows, num_valid, num_out):  # type: ignore[no-untyped-def]
    """Copy the first `num_valid` columns of a panel's tile to its place in the output."""
    for r in range(rows):
        for j in range(0, num_valid, 16):
            store_first(c + (r * num_out + j) * 4, load(tile + (r * PANEL + j) * 4), min(16, num_valid - j))


@part
def _add_bias(out, bias, first, last):  # type: ignore[no-untyped-def]
    """Columns [first, last)."""
    num_rows, num_out = out.shape
    for m in range(num_rows):
        for j in range(first, min(last, num_out), 16):
            lanes = min(16, num_out - j)
            at = address(out) + (m * num_out + j) * 4
            store_first(at, load_first(at, lanes) + load_first(address(bias) + j * 4, lanes), lanes)


def _make_kernel(element: str, encoding: str, element_bytes: int) -> Any:  # noqa: C901  # three functions, one closure
    lanes, row_bytes = native_lanes(), PANEL * element_bytes
    # The distances of prefetch are measured: far enough to hide memory, near enough to stay in the first cache.
    tall = TileShape(1, 2, encoding, lanes, row_bytes, prefetch_bytes=8192)
    wide = TileShape(2, 2, encoding, lanes, row_bytes, prefetch_bytes=2048)
    tall_tile, wide_tile = make_tile(tall), make_tile(wide)
    max_rows, wide_rows, tile_bytes = tall.max_rows, wide.max_rows, tall.max_rows * PANEL * 4

    @tile_part
    def few_rows(x, data_at, out, first, last):  # type: ignore[no-untyped-def]
        """Two panels at once for as many whole pairs as there are; returns the first panel left over."""
        num_rows, num_in = x.shape
        num_out = out.shape[1]
        panels = stack(16)
        panel = first
        while panel + 2 <= last:
            store_i64(panels, data_at + panel * num_in * row_bytes)
            store_i64(panels + 8, data_at + (panel + 1) * num_in * row_bytes)
            c = address(out) + panel * PANEL * 4
            wide_tile(num_rows, address(x), num_in, panels, num_in, num_in, c, num_out, 0, 0, 0)
            panel += 2
        return panel

    @tile_part
    def one_panel(panel_at, x, out, column, start, end):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        """Rows [start, end) of PANEL columns (fewer at the right edge) from `column` on, in even tiles."""
        num_in, num_out = x.shape[1], out.shape[1]
        panels, edge = stack(8), stack(tile_bytes)
        store_i64(panels, panel_at)
        tiles_left = (end - start + max_rows - 1) // max_rows
        while tiles_left:
            rows = (end - start) // tiles_left
            x_at, c = address(x) + start * num_in * 4, address(out) + (start * num_out + column) * 4
            if column + PANEL <= num_out:
                tall_tile(rows, x_at, num_in, panels, num_in, num_in, c, num_out, 0, 0, 0)
            else:
                tall_tile(rows, x_at, num_in, panels, num_in, num_in, edge, PANEL, 0, 0, 0)
                _store_valid(edge, c, rows, num_out - column, num_out)
            start += rows
            tiles_left -= 1

    @kernel(f"void(float32[:, ::1], {element}[:, :, ::1], float32[::1], float32[:, ::1], int64, int64)")
    def multiply(x, data, bias, out, part, parts):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        """One of `parts` even ranges of panels."""
        num_rows, num_in = x.shape
        pairs = (data.shape[0] + 1) // 2
        first, last = 2 * (pairs * part // parts), min(2 * (pairs * (part + 1) // parts), data.shape[0])
        rest = first
        if num_rows <= wide_rows:
            rest = few_rows(x, address(data), out, first, min(last, out.shape[1] // PANEL))
        block = max(1, X_BLOCK_BYTES // (4 * num_in * max_rows)) * max_rows
        for start in range(0, num_rows, block):
            for panel in range(rest, last):
                panel_at = address(data) + panel * num_in * row_bytes
                one_panel(panel_at, x, out, panel * PANEL, start, min(start + block, num_rows))
        if bias.size:
            _add_bias(out, bias, first * PANEL, last * PANEL)

    return multiply


_multiply_bf16 = _make_kernel("uint16", "pairs", 2)
_multiply_f32 = _make_kernel("float32", "f32", 4)


def linear(
    x: npt.NDArray[np.float32], packed: PackedLinear, out: npt.NDArray[np.float32], num_threads: int = 1
) -> None:
    """out [M, N] = x [M, K] times the packed weights, plus bias. Raises KernelInputError."""
    num_rows = x.shape[0]
    check("x", x, F32, (num_rows, packed.in_features))
    check("out", out, F32, (num_rows, packed.out_features))
    data = packed.data
    multiply = _multiply_bf16 if data.dtype is BF16 or data.dtype == BF16 else _multiply_f32
    if num_threads == 1 or data.size * num_rows < _WORTH_A_TEAM:
        multiply(x, data, packed.bias, out, 0, 1)
    else:
        multiply_with_team(multiply, (x, data, packed.bias, out), num_threads)
