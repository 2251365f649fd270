"""Ranks that only take time, by a stated cost model: an executor for the virtual clock.

Steps run one after the other. A copy begins with its plan's step and runs beside the steps; copies run one after the
other.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.plan import CopyIn, CopyOut, CopyOutcome, CopyResult, StepPlan, StepResult

ANY_TOKEN = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """SmolLM2-135M on two ranks of one core each, from `parkade bench engine` and `parkade bench copies`.

    A step takes `step_s`, and more for each position it computes and for each position those look back at.
    """

    step_s: float = 0.010
    position_s: float = 0.0014
    context_s: float = 5e-7
    copy_s: float = 0.001
    copy_page_s: float = 0.00025

    def step(self, plan: StepPlan) -> float:
        if not plan.chunks:
            return 0.0
        looked_at = sum(chunk.num_tokens * (chunk.start + chunk.num_tokens) for chunk in plan.chunks)
        return self.step_s + plan.num_tokens * self.position_s + looked_at * self.context_s

    def copy(self, num_pages: int) -> float:
        return self.copy_s + num_pages * self.copy_page_s


class ModelRanks:
    """An `Executor` that answers when the model says so; every token is the same."""

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._free_at = self._copies_free_at = 0.0
        self._on_copy: Callable[[CopyResult], None] | None = None
        self.num_steps = self.num_copies = 0

    def listen(self, on_copy: Callable[[CopyResult], None]) -> None:
        self._on_copy = on_copy

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        loop = asyncio.get_running_loop()
        starts = max(loop.time(), self._free_at)
        orders: tuple[CopyIn | CopyOut, ...] = (*plan.copies_out, *plan.copies_in)
        for order in orders:
            self._copy(loop, order, starts)
        seconds = self._costs.step(plan)
        self._free_at = starts + seconds
        self.num_steps += 1
        tokens = tuple((chunk.seq_id, ANY_TOKEN) for chunk in plan.chunks if chunk.sample)
        answer: asyncio.Future[StepResult] = loop.create_future()
        loop.call_at(self._free_at, _answer, answer, StepResult(step=plan.step, tokens=tokens, step_s=seconds))
        return answer

    async def stop(self) -> None:
        """Nothing runs here."""

    def _copy(self, loop: asyncio.AbstractEventLoop, order: CopyIn | CopyOut, starts: float) -> None:
        seconds = self._costs.copy(len(order.page_ids))
        self._copies_free_at = max(starts, self._copies_free_at) + seconds
        self.num_copies += 1
        result = CopyResult(copy_id=order.copy_id, outcome=CopyOutcome.DONE, seconds=seconds)
        loop.call_at(self._copies_free_at, self._tell, result)

    def _tell(self, result: CopyResult) -> None:
        if self._on_copy is not None:
            self._on_copy(result)


def _answer(answer: "asyncio.Future[StepResult]", result: StepResult) -> None:
    if not answer.done():
        answer.set_result(result)
