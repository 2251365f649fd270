"""Admission and the real engine core face to face, over fake ranks whose tokens tell when a page went astray."""

import random
from dataclasses import dataclass, field

import pytest

from scheduler.admission import Addressed, AdmissionCore, GroupCapacity
from scheduler.engine import EngineConfig, EngineCore
from scheduler.messages import Deferred, EngineEvent, FinishReason, Parked, Submission
from scheduler.sampling import SamplingParams, StopRules
from tests.fakes import FakeRanks, solo_run

PAGE = 16
VOCAB = 1000
STEP_S = 0.03


def chat(request_id: str, prompt: int, max_tokens: int, priority: int = 0) -> Submission:
    first = sum(request_id.encode()) * 100
    return Submission(
        request_id=request_id,
        gateway_id="gateway",
        prompt_tokens=tuple(range(first, first + prompt)),
        sampling=SamplingParams(seed=len(request_id)),
        stop=StopRules(max_tokens=max_tokens, ignore_eos=True),
        priority=priority,
    )


@dataclass
class Duo:
    """Both cores on one clock; each hears the other at the end of every turn."""

    pages: int
    seats: int = 8
    arena: int = 4000
    now: float = 0.0
    text: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, FinishReason] = field(default_factory=dict)
    parks: dict[str, int] = field(default_factory=dict)
    deferrals: int = 0

    def __post_init__(self) -> None:
        self.engine = EngineCore(
            EngineConfig(
                group_id="g",
                num_pages=self.pages,
                arena_pages=self.arena,
                page_size=PAGE,
                max_running=self.seats,
                max_step_tokens=64,
                max_model_len=4000,
            )
        )
        self.ranks = FakeRanks(num_pages=self.pages, arena_pages=self.arena, page_size=PAGE, vocab=VOCAB)
        self.admission = AdmissionCore()
        self.admission.add_group(
            GroupCapacity(group_id="g", num_pages=self.pages, page_size=PAGE, seats=self.seats, max_model_len=4000)
        )

    def submit(self, sub: Submission) -> None:
        self.text[sub.request_id] = []
        self._post(self.admission.submit(sub, self.now))

    def cancel(self, request_id: str) -> None:
        self._post(self.admission.cancel(request_id, self.now))

    @property
    def is_idle(self) -> bool:
        return self.engine.is_idle and not self.admission.status(self.now).requests

    def turn(self) -> None:
        self.now += STEP_S
        while (plan := self.engine.plan_step(self.now)) is not None:
            self.ranks.begin(plan)
            self._listen()
        self._listen()
        if self.ranks.num_unanswered:
            self.engine.apply(self.ranks.answer(), self.now)
        self._listen()
        self._post(self.admission.tick(self.now))
        self.engine.check_integrity()
        self.admission.check_integrity()

    def finish(self) -> None:
        for _ in range(50_000):
            if self.is_idle:
                return
            self.turn()
        raise AssertionError(f"not everyone came to the end: {self.admission.status(self.now)}")

    def _listen(self) -> None:
        for batch in self.engine.take_tokens().values():
            for event in batch:
                self.text[event.request_id] += event.tokens
                if event.finish is not None:
                    self.ended[event.request_id] = event.finish
        for event in self.engine.take_events():
            self._count(event)
            self._post(self.admission.on_event(event, self.now))

    def _count(self, event: EngineEvent) -> None:
        if isinstance(event, Parked):
            self.parks[event.request_id] = self.parks.get(event.request_id, 0) + 1
        self.deferrals += isinstance(event, Deferred)

    def _post(self, orders: list[Addressed]) -> None:
        for order in orders:
            self.engine.post(order.command)


def solo(sub: Submission) -> list[int]:
    return solo_run(sub.prompt_tokens, sub.sampling.seed, VOCAB, sub.stop.max_tokens)


def test_four_chats_of_three_and_a_half_pools_end_whole_and_equal_to_their_solo_runs() -> None:
    duo = Duo(pages=64, seats=4)
    chats = [chat(f"chat {n}", 100, 800, 10 if n == 2 else 0) for n in range(4)]
    for each in chats:
        duo.submit(each)
    duo.finish()
    assert duo.text == {each.request_id: solo(each) for each in chats}
    assert next(iter(duo.ended)) == "chat 2"
    assert "chat 2" not in duo.parks
    assert 3 <= sum(duo.parks.values()) <= 10


@pytest.mark.parametrize("seed", range(3))
def test_a_mixed_day_ends_with_every_text_whole_and_nothing_left_behind(seed: int) -> None:
    draw = random.Random(seed)
    duo = Duo(pages=40, seats=5)
    subs = [
        chat(f"r{n}", draw.randrange(1, 300), draw.randrange(1, 120), draw.choice([0, 0, 0, 1, 5])) for n in range(25)
    ]
    cancelled = {sub.request_id for sub in subs if draw.random() < 0.2}
    for sub in subs:
        duo.submit(sub)
        for _ in range(draw.randrange(25)):
            duo.turn()
        if sub.request_id in cancelled:
            duo.cancel(sub.request_id)
    duo.finish()
    assert duo.parks
    for sub in subs:
        if sub.request_id in cancelled:
            assert duo.text[sub.request_id] == solo(sub)[: len(duo.text[sub.request_id])]
        else:
            assert duo.ended[sub.request_id] is FinishReason.LENGTH
            assert duo.text[sub.request_id] == solo(sub)


def test_each_restore_is_worth_its_copy_with_the_real_lookahead_too() -> None:
    duo = Duo(pages=48, seats=6)
    subs = [chat(f"r{n}", 30 + 11 * n, 250) for n in range(10)]
    for sub in subs:
        duo.submit(sub)
    duo.finish()
    assert set(duo.ended.values()) == {FinishReason.LENGTH}
    assert max(duo.parks.values()) <= 1 + 250 // (32 - 8)
    assert sum(duo.parks.values()) <= 30
    assert duo.deferrals <= 3


def test_an_urgent_request_displaces_a_running_one_and_both_texts_are_whole() -> None:
    duo = Duo(pages=64, seats=1)
    low, high = chat("low", 50, 100), chat("high", 50, 30, 1)
    duo.submit(low)
    for _ in range(10):
        duo.turn()
    duo.submit(high)
    duo.finish()
    assert list(duo.ended) == ["high", "low"]
    assert duo.parks == {"low": 1}
    assert duo.text == {"low": solo(low), "high": solo(high)}
