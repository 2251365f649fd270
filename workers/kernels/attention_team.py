"""Attention over the threads of a team: each part is every n-th tile."""

import functools
from typing import Any

from numba import carray

from workers.kernels.compile import entry, kernel
from workers.kernels.pointers import floats_at, int32s_at, int64s_at, uint16s_at
from workers.kernels.simd import (
    address,
    load_f32,
    load_i64,
    stack,
    store_f32,
    store_i64,
)
from workers.kernels.team import run_parts, team_of

# Tiles of a prompt grow in cost with their position: small parts even that out.
_PARTS_A_THREAD = 4
_NUM_WORDS = 19
_NUM_BYTES = _NUM_WORDS * 8


@functools.cache
def _make_launch(attend_part: Any, element: str) -> tuple[Any, Any]:
    """The kernel that posts the job, and the entry that does a part: compiled when threads are first asked for."""
    elements_at = uint16s_at if element == "uint16" else floats_at

    @entry
    def attend_some(arguments: int, part: int, parts: int) -> None:
        a = carray(int64s_at(arguments), _NUM_WORDS)
        q, pool = carray(floats_at(a[0]), (a[1], a[2], a[3])), carray(elements_at(a[4]), (a[5], a[6], a[7]))
        row_tables, positions = carray(int32s_at(a[9]), a[1]), carray(int32s_at(a[10]), a[1])
        tables, out = carray(int32s_at(a[11]), (a[12], a[13])), carray(floats_at(a[16]), (a[1], a[2] * a[3]))
        scale = load_f32(arguments + 17 * 8)
        bad = attend_part(q, pool, a[8], row_tables, positions, tables, a[14], a[15], scale, out, part, parts)
        if part == 0:
            a[18] = bad

    @kernel(
        f"int64(float32[:, :, ::1], {element}[:, :, ::1], int64, int32[::1], int32[::1], int32[:, ::1], int64, int64,"
        " float32, float32[:, ::1], int64[::1], int64, int64)"
    )
    def launch(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        q, pool, layer, row_tables, positions, page_tables, num_kv_heads, page_size, scale, out, team, code, parts
    ):
        arguments = stack(_NUM_BYTES)
        shapes = (address(q), q.shape[0], q.shape[1], q.shape[2], address(pool), *pool.shape, layer)
        tables = (address(row_tables), address(positions), address(page_tables), *page_tables.shape)
        words = (*shapes, *tables, num_kv_heads, page_size, address(out))
        for i in range(17):
            store_i64(arguments + i * 8, words[i])
        store_f32(arguments + 17 * 8, scale)
        run_parts(team, code, arguments, parts)
        return load_i64(arguments + 18 * 8)

    return launch, attend_some


def attend_with_team(attend_part: Any, arguments: tuple[Any, ...], num_threads: int) -> int:
    """`attend_part(*arguments, part, parts)` for all parts: the first bad row, or -1."""
    launch, code = _make_launch(attend_part, str(arguments[1].dtype))
    return int(launch(*arguments, team_of(num_threads).mailbox, code.address, _PARTS_A_THREAD * num_threads))
