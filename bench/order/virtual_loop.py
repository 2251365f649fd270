"""An event loop whose clock jumps: when nobody has anything to do, it is at once the time of the next timer.

What runs on it must do no real I/O and use no threads. A program that waits for nothing at all is an error, not a hang.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingDue(RuntimeError):
    """Every task waits, and no timer will ever wake one."""


class _JumpingSelector(selectors.DefaultSelector):
    """`now` in seconds; waiting for a timer costs none of them."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise NothingDue(f"at {self.now:g} s of virtual time every task waits for ever")
        if not ready and timeout is not None:
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual and begins at 0."""

    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
