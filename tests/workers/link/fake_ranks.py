"""Ranks without a model, served in threads over real sockets."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from scheduler.plan import Chunk, CopyIn, CopyOut, CopyOutcome, StepPlan
from workers.link import CopyEnd, LinkAddress, OnCopy, PlanLink, PlanRunner, serve_rank
from workers.link.endpoint import Endpoint


@dataclass(frozen=True)
class FakeAnswer:
    step: int
    tokens: tuple[tuple[int, int], ...] = ()
    step_s: float = 0.001


@dataclass(frozen=True)
class FakeCopyEnd:
    copy_id: int
    outcome: CopyOutcome = CopyOutcome.DONE
    reason: str = ""
    seconds: float = 0.5
    num_bytes: int = 100


@dataclass
class FakeRank:
    """Answers (seq_id, step) for every chunk that samples; `act` may do something else first.

    A copy ends when a test calls `end_copy`.
    """

    rank: int
    act: Callable[["FakeRank", StepPlan], FakeAnswer | None] = lambda rank, plan: None
    plans: list[StepPlan] = field(default_factory=list)
    closed: int = 0
    on_copy: OnCopy = lambda end: None

    def build(self, on_copy: OnCopy) -> PlanRunner:
        self.on_copy = on_copy
        return self

    def end_copy(self, end: CopyEnd) -> None:
        self.on_copy(end)

    def execute(self, plan: StepPlan) -> FakeAnswer:
        self.plans.append(plan)
        answer = self.act(self, plan)
        if answer is not None:
            return answer
        tokens = tuple((chunk.seq_id, plan.step) for chunk in plan.chunks if chunk.sample)
        return FakeAnswer(plan.step, tokens=tokens, step_s=0.001 * (self.rank + 1))

    def close(self) -> None:
        self.closed += 1


class ServedRank:
    """A FakeRank behind `serve_rank` in a thread; `error` is what ended it, `hung_up` whether it saw the engine go."""

    def __init__(self, link: PlanLink, endpoint: str, fake: FakeRank, token: str | None = None) -> None:
        self.fake = fake
        self.error: BaseException | None = None
        self.hung_up = threading.Event()
        self._address = LinkAddress(endpoint=endpoint, token=token or link.token, rank=fake.rank, connect_timeout_s=5)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            serve_rank(self._address, self.fake.build, self.hung_up.set)
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


@asynccontextmanager
async def served(
    *fakes: FakeRank, endpoint: Endpoint | None = None, step_timeout_s: float = 10.0
) -> AsyncIterator[tuple[PlanLink, list[ServedRank]]]:
    link = PlanLink(len(fakes), step_timeout_s=step_timeout_s)
    where = await link.open(endpoint)
    ranks = [ServedRank(link, where, fake) for fake in fakes]
    try:
        await link.ready(10)
        yield link, ranks
    finally:
        link.close()
        await asyncio.to_thread(lambda: [rank.join() for rank in ranks])


def plan(step: int, *seq_ids: int) -> StepPlan:
    return StepPlan(
        step=step, chunks=tuple(Chunk(seq_id=seq_id, start=0, num_tokens=1, sample=True) for seq_id in seq_ids)
    )


def copying(step: int, *copy_ids: int) -> StepPlan:
    """Copies page n to slot n, n the copy's id; the odd ones the other way."""
    outs = tuple(CopyOut(copy_id=n, page_ids=(n,), arena_ids=(n,)) for n in copy_ids if n % 2 == 0)
    backs = tuple(CopyIn(copy_id=n, arena_ids=(n,), page_ids=(n,)) for n in copy_ids if n % 2)
    return StepPlan(step=step, copies_out=outs, copies_in=backs)
