"""Ranks without a model, served in threads over real sockets."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler.plan import Chunk, StepPlan
from workers.link import LinkAddress, PlanLink, serve_rank


@dataclass(frozen=True)
class FakeAnswer:
    step: int
    tokens: tuple[tuple[int, int], ...] = ()
    failed_copies: tuple[int, ...] = ()
    step_s: float = 0.001


@dataclass
class FakeRank:
    """Answers (seq_id, step) for every chunk that samples; `act` may do something else first."""

    rank: int
    act: Callable[["FakeRank", StepPlan], FakeAnswer | None] = lambda rank, plan: None
    plans: list[StepPlan] = field(default_factory=list)
    closed: int = 0

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
            serve_rank(self._address, lambda: self.fake, self.hung_up.set)
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


def plan(step: int, *seq_ids: int) -> StepPlan:
    return StepPlan(
        step=step, chunks=tuple(Chunk(seq_id=seq_id, start=0, num_tokens=1, sample=True) for seq_id in seq_ids)
    )
