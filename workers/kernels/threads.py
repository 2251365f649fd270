"""A kernel over several threads of this process: kernels hold no GIL, so plain threads do.

Each part writes outputs of its own, so neither the number of threads nor their order can change a bit.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


@functools.cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix="kernel")


def run_split(kernel: Callable[..., T], arguments: tuple[Any, ...], num_threads: int) -> list[T]:
    """Call `kernel(*arguments, part, num_threads)` for every part in [0, num_threads), one of them on this thread."""
    pool = _pool(num_threads - 1)
    others = [pool.submit(kernel, *arguments, part, num_threads) for part in range(1, num_threads)]
    return [kernel(*arguments, 0, num_threads), *(other.result() for other in others)]
