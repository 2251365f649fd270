"""Callers who wait until something happens to a request. Woken by the desk, never by a clock of their own but the bound
they came with."""

import asyncio
from collections.abc import Callable

MAX_WAIT_S = 60.0
MAX_WAITING = 256


class Waits:
    """One event loop owns it. Beyond `max_waiting` at a time nobody waits: a caller gets what there is at once."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._waiting = 0
        self._changes: dict[str, asyncio.Future[None]] = {}

    def wake(self, request_id: str) -> None:
        """Something happened to it, or it has ended."""
        change = self._changes.pop(request_id, None)
        if change is not None:
            change.set_result(None)

    async def until(self, request_id: str, settled: Callable[[], bool], wait_s: float) -> None:
        """Returns once `settled`, asked now and after each wake, or after `wait_s`, at most `MAX_WAIT_S`."""
        if settled() or self._waiting >= self._max_waiting:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(wait_s, MAX_WAIT_S)
        self._waiting += 1
        try:
            while not settled() and (left_s := deadline - loop.time()) > 0:
                change = self._changes.setdefault(request_id, loop.create_future())
                await asyncio.wait([change], timeout=left_s)
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._changes.clear()  # what nobody waits for
