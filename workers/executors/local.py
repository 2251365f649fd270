"""An executor for one rank in this process: tests, and models that fit one worker."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scheduler.executor import ExecutorFailed
from scheduler.plan import CopyOutcome, CopyResult, StepPlan, StepResult
from workers.link import Build, CopyEnd
from workers.link.wire import error_text


class LocalExecutor:
    """Runs plans in order on one thread of its own; builds the rank, on the caller's thread, and closes it."""

    def __init__(self, build: Build) -> None:
        """Within the event loop that plans are submitted from. Raises what `build` raises."""
        self._loop = asyncio.get_running_loop()
        self._rank = build(self._end_copy)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rank")
        self._on_copy: Callable[[CopyResult], None] | None = None
        self._failure = ""
        self._stopped = False

    def listen(self, on_copy: Callable[[CopyResult], None]) -> None:
        """Once, before the first plan that copies: who is called when a copy has ended."""
        self._on_copy = on_copy

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        """The future raises ExecutorFailed; after one failure all later plans fail."""
        if self._stopped:
            failed: asyncio.Future[StepResult] = self._loop.create_future()
            failed.set_exception(ExecutorFailed("the executor was stopped"))
            failed.exception()
            return failed
        return asyncio.ensure_future(self._loop.run_in_executor(self._thread, self._execute, plan))

    async def stop(self) -> None:
        """After the step and the copy at hand. Idempotent."""
        if not self._stopped:
            self._stopped = True
            await self._loop.run_in_executor(self._thread, self._rank.close)
            self._thread.shutdown(wait=False)

    def _execute(self, plan: StepPlan) -> StepResult:
        if self._failure:
            raise ExecutorFailed(self._failure)
        try:
            answer = self._rank.execute(plan)
        except Exception as error:
            self._failure = f"rank 0 failed in step {plan.step}: {error_text(error)}"
            raise ExecutorFailed(self._failure) from error
        if answer.step != plan.step:
            self._failure = f"rank 0 answered step {answer.step}, expected step {plan.step}"
            raise ExecutorFailed(self._failure)
        return StepResult(step=answer.step, tokens=answer.tokens, step_s=answer.step_s)

    def _end_copy(self, end: CopyEnd) -> None:
        """On the copy thread, which `stop` waits for: the loop still runs."""
        result = CopyResult(
            copy_id=end.copy_id,
            outcome=end.outcome,
            reason="" if end.outcome is CopyOutcome.DONE else f"rank 0: {end.reason}",
            seconds=end.seconds,
            num_bytes=end.num_bytes,
        )
        # Twice round the loop: a step's result that came before it has then reached whoever awaits it.
        self._loop.call_soon_threadsafe(self._loop.call_soon, self._tell_copy, result)

    def _tell_copy(self, result: CopyResult) -> None:
        if not self._stopped and not self._failure and self._on_copy is not None:
            self._on_copy(result)
