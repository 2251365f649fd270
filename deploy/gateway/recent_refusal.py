"""Remembers for a moment that the queue is full, so that a storm of requests is refused before it is rendered and
tokenized. The clients were told to come back in a second or later; a tenth of that is all the memory there is."""

import time
from collections.abc import Callable

from scheduler.admission.errors import QueueFull

MEMORY_S = 0.1


class RecentRefusal:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._refusal: QueueFull | None = None
        self._until = 0.0

    def note(self, refusal: QueueFull) -> None:
        self._refusal = refusal
        self._until = self._now() + MEMORY_S

    def check(self) -> None:
        """Raises the `QueueFull` noted last while it is fresh."""
        if self._refusal is not None and self._now() < self._until:
            raise self._refusal.with_traceback(None)
