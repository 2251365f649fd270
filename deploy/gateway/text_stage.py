"""What a request passes on its way into the queue: large bodies, templates and tokenizer are work for threads."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from scheduler.admission.errors import QueueFull

T = TypeVar("T")


class TextStage:
    """At most `max_requests` are inside at once: a burst is refused before it is read, not after it is tokenized.

    Owned by one event loop. Call `close` when done.
    """

    def __init__(self, num_threads: int, max_requests: int, now: Callable[[], float] = time.monotonic) -> None:
        self._max_requests = max_requests
        self._now = now
        self._num_inside = 0
        self._last_stay_s = 0.0
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="gateway-text")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Around all that one request does here. Raises `QueueFull`, to come back after as long as the last took."""
        if self._num_inside >= self._max_requests:
            retry_after_s = max(1, math.ceil(self._last_stay_s))
            raise QueueFull(self._num_inside, self._max_requests, "requests", retry_after_s)
        self._num_inside += 1
        entered_at = self._now()
        try:
            yield
        finally:
            self._num_inside -= 1
            self._last_stay_s = self._now() - entered_at

    async def run(self, work: Callable[[], T]) -> T:
        """In a thread, after what came before."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
