"""Fakes that stand on the seams: ranks, and the executor in front of them."""

import asyncio
from collections import deque
from collections.abc import Callable

from scheduler.executor import ExecutorFailed
from scheduler.plan import CopyResult, StepPlan, StepResult
from tests.fake_ranks import POISON, FakeRanks, Mirror, next_token, solo_run

__all__ = ["POISON", "FakeExecutor", "FakeRanks", "Mirror", "next_token", "solo_run"]


class FakeExecutor:
    """`FakeRanks` behind the `Executor` protocol. With `hold` answers come when the test says so, else at once; the
    same of copies with `hold_copies`."""

    def __init__(self, ranks: FakeRanks, *, hold: bool = False, hold_copies: bool = False) -> None:
        self.ranks = ranks
        self.hold = hold
        self.hold_copies = hold_copies
        self.failure: str | None = None
        self.num_stops = 0
        self._due: deque[asyncio.Future[StepResult]] = deque()
        self._on_copy: Callable[[CopyResult], None] | None = None

    def listen(self, on_copy: Callable[[CopyResult], None]) -> None:
        assert self._on_copy is None, "somebody listens already"
        self._on_copy = on_copy

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        if self.failure is not None:
            raise ExecutorFailed(self.failure)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[StepResult] = loop.create_future()
        self.ranks.begin(plan)
        self._due.append(future)
        if not self.hold:
            loop.call_soon(self.answer)
        if self.ranks.copies and not self.hold_copies:
            loop.call_soon(self.land_copies)
        return future

    @property
    def num_due(self) -> int:
        return len(self._due)

    def answer(self) -> None:
        """Answer the oldest plan."""
        if self._due:
            self.answer_with(self.ranks.answer())

    def answer_with(self, result: StepResult) -> None:
        """Answer the oldest plan with this, right or wrong."""
        self._due.popleft().set_result(result)
        if not self.hold_copies:
            asyncio.get_running_loop().call_soon(self.land_copies)

    def land_copies(self) -> None:
        """End every copy that may end now."""
        if self.failure is None:
            for copy_id in self.ranks.can_land:
                assert self._on_copy is not None, "a copy has ended, and nobody listens"
                self._on_copy(self.ranks.land(copy_id))

    def fail(self, failure: str) -> None:
        """Lose the ranks: everything due and everything to come fails."""
        self.failure = failure
        while self._due:
            self._due.popleft().set_exception(ExecutorFailed(failure))

    async def stop(self) -> None:
        self.num_stops += 1
        if self.failure is None:
            self.fail("the executor was stopped")
