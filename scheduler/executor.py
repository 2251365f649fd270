"""The seam between an engine and its ranks. Kept here, where it is used; implemented in `workers` and `cluster`."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from scheduler.plan import CopyResult, StepPlan, StepResult


class ExecutorFailed(RuntimeError):
    """The group of ranks is lost or disagrees with itself; every sequence on it must be failed or moved."""


class Executor(Protocol):
    """Runs plans on all ranks of a group, in the order submitted."""

    def listen(self, on_copy: Callable[[CopyResult], None]) -> None:
        """Once, before the first plan that copies: who is called, on the event loop, when a copy has ended everywhere.

        It comes after the results of all plans before the copy's own, maybe before that of its own.
        """
        ...

    def submit(self, plan: StepPlan) -> Awaitable[StepResult]:
        """Send a plan to every rank at once; await its result. Two plans may be in flight. Raises `ExecutorFailed`."""
        ...

    async def stop(self) -> None:
        """End every rank and give back all it holds. Idempotent."""
        ...
