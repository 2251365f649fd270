"""An executor for one rank in this process: tests, and models that fit one worker."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from scheduler.executor import ExecutorFailed
from scheduler.plan import StepPlan, StepResult
from workers.link import PlanRunner
from workers.link.wire import error_text


class LocalExecutor:
    """Runs plans in order on one thread of its own; takes over the rank and closes it."""

    def __init__(self, rank: PlanRunner) -> None:
        self._rank = rank
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rank")
        self._failure = ""
        self._stopped = False

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        """The future raises ExecutorFailed; after one failure all later plans fail."""
        loop = asyncio.get_running_loop()
        if self._stopped:
            failed: asyncio.Future[StepResult] = loop.create_future()
            failed.set_exception(ExecutorFailed("the executor was stopped"))
            failed.exception()
            return failed
        return asyncio.ensure_future(loop.run_in_executor(self._thread, self._execute, plan))

    async def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._rank.close)
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
        return StepResult(
            step=answer.step, tokens=answer.tokens, failed_copies=answer.failed_copies, step_s=answer.step_s
        )
