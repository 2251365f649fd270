"""Ranks that outlive engines: each engine in turn sees them as new, with steps and copies counted from 0.

Loading ranks costs seconds, an engine costs nothing. A turn of its own may use fewer pages, slots and rows than the
ranks have. It also tells how copies end, and can have one end badly: the engine must then act as if it had.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from scheduler.executor import Executor
from scheduler.plan import CopyIn, CopyOut, CopyResult, StepPlan, StepResult

CopyListener = Callable[[CopyResult], None]
# What a copy's end becomes; the second is the order it answers.
Verdict = Callable[[CopyResult, CopyIn | CopyOut], CopyResult]


def as_it_is(result: CopyResult, order: CopyIn | CopyOut) -> CopyResult:  # noqa: ARG001
    return result


class SharedRanks:
    """Takes over `executor`; `stop` ends it. One turn at a time, and the next only when the last has nothing due."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._next_step = 0
        self._copy_ids = itertools.count()
        self._turn: RanksTurn | None = None
        executor.listen(self._on_copy)

    def turn(self, verdict: Verdict = as_it_is) -> "RanksTurn":
        """An executor for one engine."""
        self._turn = RanksTurn(self._executor, self._next_step, self._copy_ids, verdict)
        return self._turn

    def end_turn(self) -> None:
        """The next turn counts on from this one."""
        if self._turn is not None:
            self._next_step = self._turn.next_step
            self._turn = None

    async def stop(self) -> None:
        await self._executor.stop()

    def _on_copy(self, result: CopyResult) -> None:
        if self._turn is not None:
            self._turn.on_copy(result)


class RanksTurn:
    """An `Executor`; its `stop` leaves the ranks running."""

    def __init__(self, executor: Executor, first_step: int, copy_ids: Iterator[int], verdict: Verdict) -> None:
        self._executor = executor
        self._first_step = first_step
        self._copy_ids = copy_ids
        self._verdict = verdict
        self._listener: CopyListener | None = None
        # By the ranks' id of a copy: the engine's order.
        self._orders: dict[int, CopyIn | CopyOut] = {}
        self.next_step = first_step

    def listen(self, on_copy: CopyListener) -> None:
        self._listener = on_copy

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        moved = replace(
            plan,
            step=plan.step + self._first_step,
            copies_out=tuple(replace(order, copy_id=self._renamed(order)) for order in plan.copies_out),
            copies_in=tuple(replace(order, copy_id=self._renamed(order)) for order in plan.copies_in),
        )
        self.next_step = moved.step + 1
        answer = asyncio.ensure_future(self._executor.submit(moved))
        own: asyncio.Future[StepResult] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: self._hand_on(done, own))
        return own

    def on_copy(self, result: CopyResult) -> None:
        order = self._orders.pop(result.copy_id)
        own = replace(result, copy_id=order.copy_id)
        # One turn of the loop later, as the answers are: a copy's end must not overtake the plans before it.
        asyncio.get_running_loop().call_soon(self._tell, self._verdict(own, order))

    def _renamed(self, order: CopyIn | CopyOut) -> int:
        copy_id = next(self._copy_ids)
        self._orders[copy_id] = order
        return copy_id

    def _tell(self, result: CopyResult) -> None:
        if self._listener is not None:
            self._listener(result)

    async def stop(self) -> None:
        """Nothing: whoever owns the ranks ends them."""

    def _hand_on(self, done: "asyncio.Future[StepResult]", own: "asyncio.Future[StepResult]") -> None:
        if own.cancelled():
            return
        if done.cancelled():
            own.cancel()
        elif (error := done.exception()) is not None:
            own.set_exception(error)
        else:
            own.set_result(replace(done.result(), step=done.result().step - self._first_step))
