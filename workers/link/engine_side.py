"""An engine's end of the plan link: one server, the same bytes to every rank, their answers and ends of copies merged.

Any rank's closing, error answer, disagreement or missed deadline fails everything that is pending, with the first
reason, and hangs up on all: a group is whole or gone.
"""

import asyncio
import hmac
import logging
from collections import deque
from collections.abc import Callable

from scheduler.executor import ExecutorFailed
from scheduler.plan import CopyResult, StepPlan, StepResult
from workers.link.agreement import Agreement
from workers.link.copy_agreement import CopyAgreement
from workers.link.endpoint import Endpoint, Listener, listen, new_token, new_unix_endpoint
from workers.link.errors import LinkError
from workers.link.frames import frame
from workers.link.rank_connection import RankConnection
from workers.link.wire import READY, VERSION, Answer, CopyAnswer, Hello, encode

log = logging.getLogger(__name__)

Progress = Callable[[str], None]
OnCopy = Callable[[CopyResult], None]


class PlanLink:
    """The wire half of a `scheduler.executor.Executor`; who starts and ends the ranks is another's business."""

    def __init__(self, world_size: int, *, step_timeout_s: float = 120.0) -> None:
        self.world_size = world_size
        self.token = new_token()
        self._step_timeout_s = step_timeout_s
        self._listener: Listener | None = None
        self._ranks: dict[int, RankConnection] = {}
        self._agreement = Agreement(world_size)
        self._pending: deque[asyncio.Future[StepResult]] = deque()
        self._deadlines: deque[asyncio.TimerHandle] = deque()
        self._copies = CopyAgreement(world_size)
        self._copy_deadline: asyncio.TimerHandle | None = None
        self._on_copy: OnCopy | None = None
        self._ready: set[int] = set()
        self._changed = asyncio.Event()
        self._failure: ExecutorFailed | None = None

    async def open(self, endpoint: Endpoint | None = None) -> str:
        """Listen; returns the endpoint ranks connect to (a private Unix socket unless another is given)."""
        self._listener = await listen(endpoint or new_unix_endpoint(), lambda: RankConnection(self))
        return str(self._listener.endpoint)

    async def ready(self, timeout_s: float, on_progress: Progress = lambda _: None) -> None:
        """Wait until every rank has connected and loaded its model; then stop listening. Raises ExecutorFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                told = -1
                while len(self._ready) < self.world_size and self._failure is None:
                    if told != len(self._ready):
                        told = len(self._ready)
                        on_progress(f"{told} of {self.world_size} ranks ready")
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            missing = sorted(set(range(self.world_size)) - self._ready)
            self.fail(f"ranks {missing} were not ready within {timeout_s:g} s")
        if self._failure is not None:
            raise self._failure
        self._stop_listening()
        on_progress(f"{self.world_size} of {self.world_size} ranks ready")

    def listen(self, on_copy: OnCopy) -> None:
        """Once, before the first plan that copies: who is called when a copy has ended on every rank."""
        self._on_copy = on_copy

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        """Send `plan` to every rank. The future raises ExecutorFailed."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[StepResult] = loop.create_future()
        for out in plan.copies_out:
            self._expect_copy(out.copy_id)
        for back in plan.copies_in:
            self._expect_copy(back.copy_id)
        if self._failure is not None:
            _set_failure(result, self._failure)
            return result
        data = frame(encode(plan))
        self._agreement.expect(plan.step)
        self._pending.append(result)
        self._deadlines.append(loop.call_later(self._step_timeout_s, self._miss_deadline, plan.step))
        for connection in self._ranks.values():
            connection.write(data)
        return result

    def fail(self, reason: str) -> None:
        """End the link for a reason found here or by who watches the ranks. The first reason stays."""
        if self._failure is None:
            self._failure = ExecutorFailed(reason)
            log.log(logging.INFO if reason == _STOPPED else logging.ERROR, "plan link: %s", reason)
        self._stop_listening()
        for deadline in self._deadlines:
            deadline.cancel()
        for result in self._pending:
            _set_failure(result, self._failure)
        self._deadlines.clear()
        self._pending.clear()
        self._stop_waiting_for_copies()
        for connection in list(self._ranks.values()):
            connection.hang_up()
        self._changed.set()

    def close(self) -> None:
        """Hang up on every rank, which ends them. Idempotent."""
        self.fail(_STOPPED)

    # ---- called by RankConnection

    def take_hello(self, connection: RankConnection, hello: Hello) -> str | None:
        """The refusal, empty when the rank is taken; None when the peer deserves no word."""
        if not hmac.compare_digest(hello.token.encode(), self.token.encode()):
            log.warning("a peer without the link's token was turned away")
            return None
        if hello.version != VERSION:
            return f"it speaks version {hello.version} of the link, the engine version {VERSION}"
        if not 0 <= hello.rank < self.world_size or hello.rank in self._ranks:
            return f"rank {hello.rank} of {self.world_size} is unknown or already connected"
        self._ranks[hello.rank] = connection
        return ""

    def take_answer(self, rank: int, answer: Answer) -> None:
        if answer.error:
            where = "while it loaded" if answer.step == READY else f"in step {answer.step}"
            self.fail(f"rank {rank} failed {where}: {answer.error}")
        elif answer.step == READY:
            self._ready.add(rank)
            self._changed.set()
        else:
            try:
                result = self._agreement.add(rank, answer)
            except LinkError as error:
                self.fail(str(error))
            else:
                self._finish_step(result)

    def take_copy(self, rank: int, answer: CopyAnswer) -> None:
        try:
            result = self._copies.add(rank, answer)
        except LinkError as error:
            self.fail(str(error))
        else:
            self._stop_waiting_for_copies()
            self._wait_for_copies()
            if result is not None and self._on_copy is not None:
                # Not at once: who awaits the steps before it, whose results may have been set just now, runs first.
                asyncio.get_running_loop().call_soon(self._tell_copy, self._on_copy, result)

    def lost(self, rank: int, reason: str) -> None:
        doing = "while it loaded" if rank not in self._ready else f"with {len(self._pending)} steps in flight"
        self.fail(f"rank {rank} {reason} {doing}")

    def _finish_step(self, result: StepResult | None) -> None:
        if result is not None:
            self._deadlines.popleft().cancel()
            pending = self._pending.popleft()
            if not pending.done():
                pending.set_result(result)

    def _expect_copy(self, copy_id: int) -> None:
        if self._failure is not None:
            return
        if self._on_copy is None:
            self.fail(f"copy {copy_id} was ordered before anybody listened for its end")
            return
        try:
            self._copies.expect(copy_id)
        except LinkError as error:
            self.fail(str(error))
        else:
            self._wait_for_copies()

    def _tell_copy(self, on_copy: OnCopy, result: CopyResult) -> None:
        if self._failure is None:
            on_copy(result)

    def _wait_for_copies(self) -> None:
        """Ranks copy one after the other, beside the steps: a copy may wait long for its turn, but some must end."""
        if self._copy_deadline is None and self._copies.num_in_flight:
            loop = asyncio.get_running_loop()
            self._copy_deadline = loop.call_later(self._step_timeout_s, self._miss_copies)

    def _stop_waiting_for_copies(self) -> None:
        if self._copy_deadline is not None:
            self._copy_deadline.cancel()
            self._copy_deadline = None

    def _miss_copies(self) -> None:
        copy_id = self._copies.oldest
        slow = self._copies.waits_for(copy_id)
        self.fail(f"copy {copy_id}: no answer from ranks {slow} within {self._step_timeout_s:g} s")

    def _miss_deadline(self, step: int) -> None:
        slow = self._agreement.waits_for()
        self.fail(f"step {step}: no answer from ranks {slow} within {self._step_timeout_s:g} s")

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


_STOPPED = "the executor was stopped"


def _set_failure(result: asyncio.Future[StepResult], failure: ExecutorFailed) -> None:
    if not result.done():
        result.set_exception(ExecutorFailed(str(failure)))
        result.exception()  # whoever awaits it will see it; who does not, has been told by another future
