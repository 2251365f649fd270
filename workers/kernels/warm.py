"""Load or compile every kernel now, so that no request waits for it."""

import importlib

import numpy as np

KERNEL_MODULES = ("activation", "attention", "copy", "embedding", "linear", "norm", "rope", "sampling")


def warm_up(num_threads: int = 1) -> None:
    """Kernels compile where they are defined, so to import is to compile, or to load what an earlier process compiled.

    With `num_threads` above 1 what a team of threads needs is compiled and started too. About a second from the cache;
    half a minute the first time on a machine.
    """
    for name in KERNEL_MODULES:
        importlib.import_module(f"workers.kernels.{name}")
    if num_threads > 1:
        for element in (np.float32, np.uint16):
            _run_with_team(element, num_threads)


def _run_with_team(element: type[np.generic], num_threads: int) -> None:
    """Something large enough for a team, in this encoding."""
    from workers.kernels.attention import attend  # noqa: PLC0415  # the import compiles: only when asked to
    from workers.kernels.linear import linear, pack_linear  # noqa: PLC0415

    packed = pack_linear(np.zeros((1024, 256), element))
    linear(np.zeros((1, 256), np.float32), packed, np.empty((1, 1024), np.float32), num_threads)
    row, table, q = np.zeros(1, np.int32), np.zeros((1, 1), np.int32), np.zeros((1, 1, 16), np.float32)
    attend(
        q, np.zeros((1, 1, 512), element), 0, row, row, table, 1, 16, 1.0, np.empty((1, 16), np.float32), num_threads
    )
