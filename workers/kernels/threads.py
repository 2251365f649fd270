"""A kernel over several threads of this process: kernels hold no GIL, so plain threads do.

Each part writes outputs of its own, so neither the number of threads nor their order can change a bit.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


@functools.cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix="kernel")


def run_split(kernel: Callable[..., None], common: tuple[Any, ...], num_items: int, num_threads: int) -> None:
    """Call `kernel(*common, first, last)` for `num_threads` even ranges [first, last) of 0..num_items, this thread's
    too."""
    num_threads = min(num_threads, num_items)
    if num_threads <= 1:
        kernel(*common, 0, num_items)
        return
    cuts = [num_items * part // num_threads for part in range(num_threads + 1)]
    pool = _pool(num_threads - 1)
    others = [pool.submit(kernel, *common, cuts[part], cuts[part + 1]) for part in range(1, num_threads)]
    kernel(*common, 0, cuts[1])
    for other in others:
        other.result()
