"""Messages to one peer, in order, one batch on its way at a time: what comes up meanwhile goes with the next batch.

An actor that is async takes calls in any order; waiting for each answer before the next call is what keeps theirs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

M = TypeVar("M")


class OrderedSender(Generic[M]):
    """`send` delivers a batch and returns when the peer has taken it; when it raises, the peer is lost for good."""

    def __init__(
        self, send: Callable[[Sequence[M]], Awaitable[None]], on_lost: Callable[[Exception], None], max_waiting: int
    ) -> None:
        self._send = send
        self._on_lost = on_lost
        self._max_waiting = max_waiting
        self._waiting: list[M] = []
        self._task: asyncio.Task[None] | None = None
        self._lost = False

    def put(self, message: M) -> None:
        """Never waits. To a lost peer: dropped. More than `max_waiting` undelivered: the peer counts as lost."""
        if self._lost:
            return
        self._waiting.append(message)
        if len(self._waiting) > self._max_waiting:
            self._lose(RuntimeError(f"{len(self._waiting)} messages wait for a peer that does not take them"))
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        """Returns when all that was put has been taken, or the peer is lost."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Drop what waits. Idempotent."""
        self._lost = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._send(batch)
        except Exception as error:
            self._lose(error)
        finally:
            self._task = None

    def _lose(self, error: Exception) -> None:
        if not self._lost:
            self._lost = True
            self._waiting.clear()
            self._on_lost(error)
