"""The real engine core over fake ranks, as a `World` wants it. Its tokens tell when a page went astray.

Copies land a step after the plan that ordered them. Every choice's text must be what it would be alone.
"""

from collections.abc import Callable

from scheduler.admission import Addressed, GroupCapacity
from scheduler.engine import EngineConfig, EngineCore
from scheduler.engine.sequence import State
from scheduler.messages import Deferred, EngineEvent, FinishReason, Notice, Park, Parked, ParkReason, Submission
from scheduler.plan import CopyIn, CopyOut, CopyOutcome
from scheduler.sampling import SamplingParams, StopRules
from tests.fake_ranks import FakeRanks, solo_run

VOCAB = 1000
STOP_IDS = tuple(range(15))
STEP_S = 0.03


def chat(
    request_id: str, prompt: int, max_tokens: int, priority: int = 0, n: int = 1, *, stops: bool = False
) -> Submission:
    """Its prompt is like no other's. If it `stops`, its choices end apart from each other, most within 150 tokens."""
    first = sum(ord(letter) << at for at, letter in enumerate(request_id)) * 1000
    return Submission(
        request_id=request_id,
        gateway_id="gateway",
        prompt_tokens=tuple(range(first, first + prompt)),
        sampling=SamplingParams(seed=len(request_id)),
        stop=StopRules(max_tokens=max_tokens, stop_token_ids=STOP_IDS if stops else ()),
        priority=priority,
        n=n,
    )


def solo(sub: Submission, choice: int = 0) -> list[int]:
    seed, stop = sub.sampling.seed + choice, sub.stop
    return solo_run(sub.prompt_tokens, seed, VOCAB, stop.max_tokens, stop.stop_token_ids)


class RealEngine:
    def __init__(
        self, capacity: GroupCapacity, arena_pages: int, copy_fails: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.capacity = capacity
        self.core = EngineCore(
            EngineConfig(
                group_id=capacity.group_id,
                num_pages=capacity.num_pages,
                arena_pages=arena_pages,
                page_size=capacity.page_size,
                max_running=capacity.seats,
                max_step_tokens=64,
                max_model_len=capacity.max_model_len,
                recompute=capacity.recompute,
                park=capacity.park,
            )
        )
        self.copy_fails = copy_fails
        self.ranks = FakeRanks(
            num_pages=capacity.num_pages,
            arena_pages=arena_pages,
            page_size=capacity.page_size,
            vocab=VOCAB,
            outcome_of=self._outcome,
        )
        self.now = 0.0
        self.generated = 0
        self.deferrals = 0
        self.text: dict[tuple[str, int], list[int]] = {}
        self.finish: dict[tuple[str, int], FinishReason] = {}
        self.notices: dict[str, list[Notice]] = {}
        self.parks: dict[str, list[ParkReason]] = {}
        self.submissions: dict[str, Submission] = {}
        self.ordered_parks = 0

    def _outcome(self, order: CopyOut | CopyIn) -> CopyOutcome:
        return CopyOutcome.FAILED if self.copy_fails(str(order.copy_id)) else CopyOutcome.DONE

    def receive(self, orders: list[Addressed]) -> None:
        for order in orders:
            if order.group_id == self.capacity.group_id:
                self.ordered_parks += isinstance(order.command, Park)
                self.core.post(order.command)

    def step(self) -> list[EngineEvent]:
        """The copies of the last step land, two plans at most are sent, one is answered."""
        self.now += STEP_S
        while self.ranks.can_land:
            self.core.apply_copy(self.ranks.land(None), self.now)
        while (plan := self.core.plan_step(self.now)) is not None:
            for new in plan.new:
                assert len(new.tokens) > 0
            self.ranks.begin(plan)
        if self.ranks.num_unanswered:
            self.core.apply(self.ranks.answer(), self.now)
        self._listen()
        events = self.core.take_events()
        for event in events:
            self.deferrals += isinstance(event, Deferred)
            if isinstance(event, Parked):
                self.parks.setdefault(event.request_id, []).append(event.reason)
        return events

    def _listen(self) -> None:
        for batch in self.core.take_tokens().values():
            for said in batch:
                key = said.request_id, said.choice
                self.text.setdefault(key, []).extend(said.tokens)
                self.generated += len(said.tokens)
                if said.finish is not None:
                    assert key not in self.finish, "a choice ended twice"
                    self.finish[key] = said.finish
                if said.notice is not None:
                    self.notices.setdefault(said.request_id, []).append(said.notice)

    # ---- questions

    @property
    def living(self) -> list[str]:
        return [family.request_id for family in self.core._roster.by_request.values() if family.living]

    @property
    def parked(self) -> dict[str, tuple[int, int, int]]:
        families = [one for one in self.core._roster.by_request.values() if one.state is State.PARKED]
        to_hold = self.core._room.to_hold
        return {one.request_id: (one.num_tokens, len(one.living), to_hold(one)) for one in families}

    @property
    def recomputes_now(self) -> bool:
        """Or prefills: positions are computed of which nobody hears."""
        running = self.core._roster.running
        return any(seq.num_scheduled < max(seq.replay_end, seq.prompt_end) for seq in running)

    def check(self) -> None:
        self.core.check_integrity()

    def check_empty(self) -> None:
        for _ in range(10):
            self.step()
        assert self.core.is_idle
        load = self.core.account()
        assert (load.pages_free, load.arena_free) == (load.pages_total, load.arena_total)

    def check_texts(self, subs: dict[str, Submission]) -> int:
        """Each choice has said what it would say alone, whole unless it was ended; returns how many were whole."""
        whole = 0
        for (request_id, choice), text in self.text.items():
            alone = solo(subs[request_id], choice)
            assert text == alone[: len(text)], f"choice {choice} of {request_id} says something else than alone"
            whole += len(text) == len(alone)
        return whole
