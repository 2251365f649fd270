"""Linear layers over the threads of a team: each part is a range of weight panels."""

import functools
from typing import Any

from numba import carray

from workers.kernels.compile import entry, kernel
from workers.kernels.pointers import floats_at, int64s_at, uint16s_at
from workers.kernels.simd import address, stack, store_i64
from workers.kernels.team import run_parts, team_of

_PARTS_A_THREAD = 2


@functools.cache
def _make_launch(multiply: Any, element: str) -> tuple[Any, Any]:
    """The kernel that posts the job, and the entry that does a part: compiled when threads are first asked for."""
    elements_at = uint16s_at if element == "uint16" else floats_at

    @entry
    def multiply_part(arguments: int, part: int, parts: int) -> None:
        a = carray(int64s_at(arguments), 10)
        x, out = carray(floats_at(a[0]), (a[1], a[2])), carray(floats_at(a[3]), (a[1], a[4]))
        data, bias = carray(elements_at(a[5]), (a[6], a[2], a[7])), carray(floats_at(a[8]), a[9])
        multiply(x, data, bias, out, part, parts)

    @kernel(f"void(float32[:, ::1], {element}[:, :, ::1], float32[::1], float32[:, ::1], int64[::1], int64, int64)")
    def launch(x, data, bias, out, team, code, parts):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        arguments = stack(80)
        weights = (address(data), data.shape[0], data.shape[2], address(bias), bias.size)
        words = (address(x), x.shape[0], x.shape[1], address(out), out.shape[1], *weights)
        for i in range(10):
            store_i64(arguments + i * 8, words[i])
        run_parts(team, code, arguments, parts)

    return launch, multiply_part


def multiply_with_team(multiply: Any, arguments: tuple[Any, ...], num_threads: int) -> None:
    """`multiply(x, data, bias, out, part, parts)` for all parts."""
    launch, code = _make_launch(multiply, str(arguments[1].dtype))
    launch(*arguments, team_of(num_threads).mailbox, code.address, _PARTS_A_THREAD * num_threads)
