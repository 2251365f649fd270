"""An engine core and fake ranks on a hand-turned clock, with everything the engine said kept for questions."""

from collections.abc import Callable
from typing import TypeVar

from scheduler.engine import EngineConfig, EngineCore
from scheduler.messages import (
    Admit,
    Cancel,
    Command,
    EngineEvent,
    Fail,
    FinishReason,
    Notice,
    Park,
    ParkReason,
    Restore,
    Submission,
    TokenEvent,
)
from scheduler.plan import CopyIn, CopyOut, CopyOutcome, StepPlan
from scheduler.sampling import SamplingParams, StopRules
from tests.fakes import FakeRanks, solo_run

Event = TypeVar("Event", bound=EngineEvent)

STEP_S = 0.01


def submission(
    request_id: str,
    prompt: int = 4,
    max_tokens: int = 8,
    *,
    n: int = 1,
    seed: int = 0,
    stop_ids: tuple[int, ...] = (),
    ignore_eos: bool = False,
) -> Submission:
    """A request whose prompt is `prompt` tokens that no other id has."""
    first = sum(request_id.encode()) * 1000
    return Submission(
        request_id=request_id,
        gateway_id="gateway",
        prompt_tokens=tuple(range(first, first + prompt)),
        sampling=SamplingParams(seed=seed),
        stop=StopRules(max_tokens=max_tokens, stop_token_ids=stop_ids, ignore_eos=ignore_eos),
        n=n,
    )


class Rig:
    """Turns the engine by hand. Integrity is checked after every plan and every answer."""

    def __init__(
        self,
        *,
        pages: int = 16,
        arena: int = 64,
        page_size: int = 4,
        running: int = 8,
        step_tokens: int = 64,
        model_len: int = 1000,
        lookahead: int = 4,
        park: bool = True,
        inflight: int = 2,
        vocab: int = 1000,
        recompute: bool = False,
        hold_copies: bool = False,
        outcome_of: Callable[[CopyOut | CopyIn], CopyOutcome] = lambda order: CopyOutcome.DONE,
    ) -> None:
        self.core = EngineCore(
            EngineConfig(
                group_id="group",
                num_pages=pages,
                arena_pages=arena,
                page_size=page_size,
                max_running=running,
                max_step_tokens=step_tokens,
                max_model_len=model_len,
                lookahead_steps=lookahead,
                park=park,
                recompute=recompute,
                max_inflight=inflight,
            )
        )
        self.ranks = FakeRanks(
            num_pages=pages,
            arena_pages=arena,
            page_size=page_size,
            max_step_tokens=step_tokens,
            vocab=vocab,
            outcome_of=outcome_of,
        )
        self.hold_copies = hold_copies
        self.now = 0.0
        self.number = 0
        self.submissions: dict[str, Submission] = {}
        self.events: list[EngineEvent] = []
        self.said: dict[str, list[TokenEvent]] = {}

    # ---- commands

    def post(self, kind: type[Command], **facts: object) -> None:
        self.number += 1
        self.core.post(kind(number=self.number, **facts))  # type: ignore[arg-type]

    def admit(self, request_id: str, prompt: int = 4, max_tokens: int = 8, **rules: object) -> Submission:
        sub = submission(request_id, prompt, max_tokens, **rules)  # type: ignore[arg-type]
        self.submissions[request_id] = sub
        self.post(Admit, submission=sub)
        return sub

    def park(self, request_id: str, reason: ParkReason = ParkReason.PRESSURE) -> None:
        self.post(Park, request_id=request_id, reason=reason)

    def restore(self, request_id: str) -> None:
        self.post(Restore, request_id=request_id)

    def cancel(self, request_id: str) -> None:
        self.post(Cancel, request_id=request_id)

    def fail(self, request_id: str, error: str) -> None:
        self.post(Fail, request_id=request_id, error=error)

    # ---- turning

    def plan(self) -> StepPlan | None:
        """Plan once; the ranks begin what comes out."""
        plan = self.core.plan_step(self.now)
        if plan is not None:
            self.ranks.begin(plan)
        self._after()
        return plan

    def plan_all(self) -> None:
        while self.plan() is not None:
            pass

    def answer(self) -> None:
        """The oldest answer comes back."""
        self.core.apply(self.ranks.answer(), self.now)
        self._after()

    def land(self, copy_id: int | None = None) -> None:
        """A copy ends, the oldest if none is named."""
        self.core.apply_copy(self.ranks.land(copy_id), self.now)
        self._after()

    def turn(self) -> None:
        """As the loop does: send what can be sent, take one answer, and the copies that have ended."""
        self.plan_all()
        if self.ranks.num_unanswered:
            self.answer()
        while self.ranks.can_land and not self.hold_copies:
            self.land()
        self.now += STEP_S

    def settle(self, turns: int = 200) -> None:
        """Turn until nothing moves any more."""
        for _ in range(turns):
            self.turn()
            if self.core.num_inflight == 0 and self.plan() is None:
                return
        raise AssertionError(f"still moving after {turns} turns")

    def until(self, kind: type[Event], request_id: str | None = None, turns: int = 500) -> Event:
        """Turn until a new event of this kind comes, and return it."""
        seen = len(self.events)
        for _ in range(turns):
            for event in self.events[seen:]:
                if isinstance(event, kind) and request_id in (None, getattr(event, "request_id", None)):
                    return event
            seen = len(self.events)
            self.turn()
        raise AssertionError(f"no {kind.__name__} within {turns} turns")

    def _after(self) -> None:
        self.core.check_integrity()
        self.listen()

    def listen(self) -> None:
        """Keep what the engine has said."""
        for batch in self.core.take_tokens().values():
            for event in batch:
                self.said.setdefault(event.request_id, []).append(event)
        self.events += self.core.take_events()

    # ---- questions

    def of(self, kind: type[Event], request_id: str | None = None) -> list[Event]:
        """Every event of a kind so far."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and request_id in (None, getattr(event, "request_id", None))
        ]

    def tokens(self, request_id: str, choice: int = 0) -> list[int]:
        return [token for event in self.said.get(request_id, ()) if event.choice == choice for token in event.tokens]

    def finish(self, request_id: str, choice: int = 0) -> FinishReason | None:
        """The finish of a choice; it must be its last event, and the only finish. Notices are for all choices."""
        said = [one for one in self.said.get(request_id, []) if one.choice == choice and one.notice is None]
        assert all(event.finish is None for event in said[:-1])
        return said[-1].finish if said else None

    def notices(self, request_id: str) -> list[Notice]:
        return [event.notice for event in self.said.get(request_id, ()) if event.notice is not None]

    def solo(self, request_id: str, num_tokens: int | None = None, choice: int = 0) -> list[int]:
        """What a choice would say as a request of its own."""
        sub = self.submissions[request_id]
        stop_ids = () if sub.stop.ignore_eos else sub.stop.stop_token_ids
        wanted = sub.stop.max_tokens if num_tokens is None else num_tokens
        return solo_run(sub.prompt_tokens, sub.sampling.seed + choice, self.ranks.vocab, wanted, stop_ids)

    @property
    def free(self) -> tuple[int, int]:
        """Free pages and free arena slots."""
        load = self.core.account()
        return load.pages_free, load.arena_free
