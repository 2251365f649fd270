"""The engine's one task: keeps plans in flight, hands out what the core says, sleeps when there is nothing to do.

Everything happens on one event loop. The loop wakes on a command, on an answer, on the end of a copy and, only while
every sequence waits for a page, on the core's clock. What bounds an answer or a copy in time is the executor.
Callbacks must not wait; what they raise is logged and harms nobody.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping

from scheduler.engine.core import EngineCore
from scheduler.executor import Executor, ExecutorFailed
from scheduler.messages import Command, EngineEvent, TokenEvent
from scheduler.plan import CopyResult, StepPlan, StepResult

logger = logging.getLogger(__name__)

TokenSink = Callable[[Mapping[str, list[TokenEvent]]], None]
EventSink = Callable[[EngineEvent], None]

STOP_PATIENCE_S = 10.0
# Less than whoever asks waits: the gateway's `health_s`, and admission.
PROBE_PATIENCE_S = 3.0


class EngineLoop:
    """Drives one `EngineCore` over one `Executor`. `failure` is the text of what ended it, None while all is well."""

    def __init__(
        self,
        core: EngineCore,
        executor: Executor,
        on_tokens: TokenSink,
        on_event: EventSink,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._executor = executor
        self._on_tokens = on_tokens
        self._on_event = on_event
        self._now = now
        self._wake = asyncio.Event()
        self._answers: deque[asyncio.Future[StepResult]] = deque()
        self._copies: deque[CopyResult] = deque()
        self._probes: list[asyncio.Future[None]] = []
        self._empty_step: asyncio.Future[StepResult] | None = None
        self._stopping = False
        self._ended = asyncio.Event()
        self._started = False
        self.failure: str | None = None

    def post(self, command: Command) -> None:
        """Take a command. After a failure or a stop it is answered at once: admissions end with the error."""
        self._core.post(command)
        if self._ended.is_set():
            self._core.carry_out(self._now())
            self._deliver()
        else:
            self._wake.set()

    def on_copy(self, result: CopyResult) -> None:
        """A copy has ended on every rank. What ends after the loop has is nobody's."""
        if not self._ended.is_set():
            self._copies.append(result)
            self._wake.set()

    async def run(self) -> None:
        """Run until `stop`. Raises `ExecutorFailed` after every sequence was failed, if the ranks are lost."""
        self._started = True
        self._executor.listen(self.on_copy)
        try:
            while not self._stopping:
                self._wake.clear()
                self._turn()
                await self._sleep()
            await self._drain()
        except asyncio.CancelledError:
            self._fail("the engine was stopped")
            raise
        except ExecutorFailed as error:
            self._fail(f"the model's ranks are lost: {error}")
            raise
        except Exception as error:
            logger.exception("the engine loop ends because of a fault")
            self._fail(f"the engine has a fault: {error}")
            raise
        else:
            self._fail("the engine was stopped")
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Let the plans in flight land, end what still lives with an error, and stop the executor. Idempotent."""
        self._stopping = True
        self._wake.set()
        if self._started:
            await self._ended.wait()
        else:
            self._fail("the engine was stopped")
            self._ended.set()
        await self._executor.stop()

    async def probe(self, patience_s: float = PROBE_PATIENCE_S) -> None:
        """Returns when the ranks have answered a step that was due after this call, an empty one if there is no work.

        Or after `patience_s` while they are at a step with work in it: a long prompt may take longer than whoever asks
        would wait, and how long is the executor's to bound. Raises TimeoutError if it is the empty step that they do
        not answer, and `ExecutorFailed`.
        """
        if self._ended.is_set():
            raise ExecutorFailed(self.failure or "the engine was stopped")
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._probes.append(answered)
        self._wake.set()
        if not (await asyncio.wait([answered], timeout=patience_s))[0]:
            self._probes.remove(answered)
            if not self._answers or self._answers[0] is self._empty_step:
                raise TimeoutError(f"the ranks did not answer an empty step within {patience_s:g} s")
            return
        answered.result()

    def _turn(self) -> None:
        """Take in what is answered, send what can be sent, then say what is to be said: ranks first."""
        while self._answers and self._answers[0].done():
            self._apply(self._answers.popleft().result())
        while self._copies:  # after the answers: a token owed is applied before its sequence is out
            self._core.apply_copy(self._copies.popleft(), self._now())
        while (plan := self._core.plan_step(self._now())) is not None:
            self._submit(plan)
        if self._probes and not self._answers:
            self._empty_step = self._submit(self._core.plan_probe())
        self._deliver()

    def _apply(self, result: StepResult) -> None:
        self._core.apply(result, self._now())
        probes, self._probes = self._probes, []
        for probe in probes:
            if not probe.done():
                probe.set_result(None)

    def _submit(self, plan: StepPlan) -> "asyncio.Future[StepResult]":
        answer = asyncio.ensure_future(self._executor.submit(plan))
        answer.add_done_callback(self._on_answer)
        self._answers.append(answer)
        return answer

    def _on_answer(self, answer: "asyncio.Future[StepResult]") -> None:
        if not answer.cancelled():
            answer.exception()  # seen: an answer given up by a failing loop is nobody's to fetch
        self._wake.set()

    async def _sleep(self) -> None:
        """Until something happens, or the core wants another look."""
        wake_at = None if self._answers else self._core.wake_at
        if wake_at is None:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(max(0.0, wake_at - self._now())):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _drain(self) -> None:
        """Apply what is in flight, for a bounded time."""
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                while self._answers:
                    self._apply(await self._answers[0])
                    self._answers.popleft()
        except TimeoutError:
            logger.warning("%d plans were not answered within %g s", len(self._answers), STOP_PATIENCE_S)

    def _fail(self, failure: str) -> None:
        """End every sequence and every probe."""
        self.failure = failure
        self._core.fail_all(failure, self._now())
        for answer in self._answers:
            if isinstance(answer, asyncio.Task):  # a bare future is the executor's, to be settled by it
                answer.cancel()
        self._answers.clear()
        self._copies.clear()
        for probe in self._probes:
            if not probe.done():
                probe.set_exception(ExecutorFailed(failure))
        self._probes.clear()
        self._deliver()

    def _deliver(self) -> None:
        tokens = self._core.take_tokens()
        if tokens:
            try:
                self._on_tokens(tokens)
            except Exception:
                logger.exception("tokens were not delivered")
        for event in self._core.take_events():
            try:
                self._on_event(event)
            except Exception:
                logger.exception("%s was not delivered", type(event).__name__)
