"""Paged grouped-query attention with online softmax, a row's bits independent of the other rows, pages and threads.

Row m sees slots [0, positions[m]] of its sequence. Rows of one sequence share a tile with all query heads of a KV head,
so prefill runs at the speed of a matrix product (`attention_tile.py`).

Pool, page-major: [num_pages, num_layers, 2 * Hkv * page_size * D] of float32 or uint16 (bf16 bits); in a page of a
layer first K as [Hkv, D, page_size], so that 16 slots are one vector, then V as [Hkv, page_size, D].
"""

from typing import Any

import numpy.typing as npt

from workers.kernels.attention_team import attend_with_team
from workers.kernels.attention_tile import MAX_ROWS, make_attend_tile
from workers.kernels.checks import F32, I32, KernelInputError, check, check_pool
from workers.kernels.compile import kernel, part
from workers.kernels.simd import address


@part
def _first_bad_row(row_tables, positions, page_tables, num_pages, page_size):  # type: ignore[no-untyped-def]
    """The first row that names a table, position or page outside its bound, or breaks the order; -1 if none does."""
    num_rows = row_tables.size
    for m in range(num_rows):
        table, position = row_tables[m], positions[m]
        if table < 0 or table >= page_tables.shape[0]:
            return m
        if position < 0 or position >= page_tables.shape[1] * page_size:
            return m
        if m + 1 < num_rows and row_tables[m + 1] == table:
            if positions[m + 1] < position:
                return m + 1
            continue
        for i in range(position // page_size + 1):
            if page_tables[table, i] < 0 or page_tables[table, i] >= num_pages:
                return m
    return -1


def _make_kernel(element: str, encoding: str, element_bytes: int) -> Any:
    attend_tile = make_attend_tile(encoding, element_bytes)

    @kernel(
        f"int64(float32[:, :, ::1], {element}[:, :, ::1], int64, int32[::1], int32[::1], int32[:, ::1], int64, int64,"
        " float32, float32[:, ::1], int64, int64)"
    )
    def attend_part(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        q, pool, layer, row_tables, positions, page_tables, num_kv_heads, page_size, scale, out, part, parts
    ):
        """Every `parts`-th tile from `part` on. Returns the first bad row, or -1."""
        bad = _first_bad_row(row_tables, positions, page_tables, pool.shape[0], page_size)
        if bad >= 0:
            return bad
        layer_bytes = pool.shape[2] * element_bytes
        layer_at, page_stride = address(pool) + layer * layer_bytes, pool.shape[1] * layer_bytes
        places = (layer_at, page_stride, num_kv_heads, q.shape[2], page_size)
        group = q.shape[1] // num_kv_heads
        most_heads = min(group, MAX_ROWS)
        tile_index, row = 0, 0
        while row < q.shape[0]:
            table, count = row_tables[row], 1
            most = min(MAX_ROWS // most_heads, q.shape[0] - row)
            while count < most and row_tables[row + count] == table:
                count += 1
            for kv_head in range(num_kv_heads):
                for h in range(0, group, most_heads):
                    if tile_index % parts == part:
                        tile = (row, count, kv_head * group + h, min(most_heads, group - h), kv_head)
                        attend_tile(q, places, positions, page_tables[table], tile, scale, out)
                    tile_index += 1
            row += count
        return -1

    return attend_part


_attend_bf16 = _make_kernel("uint16", "bf16", 2)
_attend_f32 = _make_kernel("float32", "f32", 4)


def attend(  # noqa: PLR0917
    q: npt.NDArray[Any],
    kv_pool: npt.NDArray[Any],
    layer: int,
    row_tables: npt.NDArray[Any],
    positions: npt.NDArray[Any],
    page_tables: npt.NDArray[Any],
    num_kv_heads: int,
    page_size: int,
    scale: float,
    out: npt.NDArray[Any],
    num_threads: int = 1,
) -> None:
    """out [M, Hq * D] = softmax(q [M, Hq, D] K * scale) V over slots [0, positions[m]] of page_tables[row_tables[m]].

    Rows of one sequence are contiguous and ascending in position; what they see is written already. Raises
    KernelInputError on wrong arrays and on a table, position or page outside its bound.
    """
    num_rows, num_heads, head_dim = q.shape
    check("q", q, F32, (num_rows, num_heads, head_dim))
    check("out", out, F32, (num_rows, num_heads * head_dim))
    check("row_tables", row_tables, I32, (num_rows,))
    check("positions", positions, I32, (num_rows,))
    check("page_tables", page_tables, I32, page_tables.shape)
    check_pool(kv_pool, layer, num_heads, num_kv_heads, head_dim, page_size)
    attend_part = _attend_f32 if kv_pool.dtype == F32 else _attend_bf16
    arguments = (q, kv_pool, layer, row_tables, positions, page_tables, num_kv_heads, page_size, scale, out)
    if num_threads == 1:
        bad_row = attend_part(*arguments, 0, 1)
    else:
        bad_row = attend_with_team(attend_part, arguments, num_threads)
    if bad_row >= 0:
        raise KernelInputError(
            f"row {bad_row} has table {row_tables[bad_row]} of {page_tables.shape[0]}, position {positions[bad_row]} of"
            f" {page_tables.shape[1] * page_size}; both must be in bounds, positions of a sequence ascend, and its page"
            f" ids must be in [0, {kv_pool.shape[0]})"
        )
