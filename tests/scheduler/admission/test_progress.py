"""Whole runs on a paper engine: everybody finishes, parks and waits are bounded, and something always moves."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from scheduler.admission import AdmissionCore, AdmissionPolicy, GroupCapacity
from scheduler.messages import FinishReason, Submission
from tests.scheduler.admission.paper_engine import PaperEngine
from tests.scheduler.admission.paper_life import submission

PAGE = 16
STEP_S = 0.03


@dataclass
class Run:
    """One group from a list of (step, submission) to the end of them all."""

    pages: int
    seats: int = 8
    arena: int = 10_000
    policy: AdmissionPolicy = field(default_factory=AdmissionPolicy)
    lookahead: int = 8
    recompute: bool = False
    order: list[str] = field(default_factory=list)
    longest_wait_s: dict[str, float] = field(default_factory=dict)
    longest_idle: int = 0

    def play(self, arrivals: Iterable[tuple[int, Submission]], *, until: str | None = None) -> PaperEngine:
        capacity = GroupCapacity(
            group_id="g",
            num_pages=self.pages,
            page_size=PAGE,
            seats=self.seats,
            max_model_len=100_000,
            recompute=self.recompute,
        )
        engine = PaperEngine(capacity=capacity, arena_pages=self.arena, lookahead=self.lookahead)
        core = AdmissionCore(self.policy)
        core.add_group(capacity)
        coming = sorted(arrivals, key=lambda arrival: arrival[0])
        step = idle = 0
        while coming or core._books.records:
            now = step * STEP_S
            while coming and coming[0][0] <= step:
                engine.receive(core.submit(coming.pop(0)[1], now))
            before = engine.generated
            for event in engine.step():
                engine.receive(core.on_event(event, now))
            core.check_integrity()
            for request_id, record in core._books.records.items():
                self.longest_wait_s[request_id] = record.waited_s(now)
            idle = 0 if engine.generated > before or not engine.lives else idle + 1
            self.longest_idle = max(self.longest_idle, idle)
            self.order += [request_id for request_id in engine.ended if request_id not in self.order]
            if until in engine.ended:
                return engine
            step += 1
            assert step < 200_000, "it never ends"
        return engine


def all_whole(engine: PaperEngine, count: int) -> bool:
    return list(engine.ended.values()) == [FinishReason.LENGTH] * count


def test_four_chats_of_three_and_a_half_pools_all_finish_and_the_urgent_one_is_never_parked() -> None:
    run = Run(pages=64, seats=4)
    engine = run.play((0, submission(f"chat {n}", 100, 800, 10 if n == 2 else 0)) for n in range(4))
    assert all_whole(engine, 4)
    assert run.order[0] == "chat 2"
    assert "chat 2" not in engine.parks
    assert 3 <= sum(engine.parks.values()) <= 8
    assert engine.deferrals == 0


def test_four_requests_that_each_grow_to_the_whole_pool_run_one_after_the_other_to_the_end() -> None:
    run = Run(pages=64, seats=4)
    engine = run.play((0, submission(f"r{n}", 64, 64 * PAGE - 64)) for n in range(4))
    assert all_whole(engine, 4)


def test_only_the_lower_priority_is_ever_parked_though_it_is_the_longest() -> None:
    run = Run(pages=64, seats=2)
    engine = run.play([(0, submission("low", 20, 600)), (30, submission("high", 20, 600, 10))])
    assert all_whole(engine, 2)
    assert set(engine.parks) == {"low"}
    assert run.order == ["high", "low"]


@pytest.mark.parametrize("seed", range(4))
def test_every_restore_is_worth_its_copy(seed: int) -> None:
    """Case 3, thrash: what comes back runs on for its runway before the engine, which looks less far ahead, complains;
    so the parks of a request are bounded by its length."""
    draw = random.Random(seed)
    arrivals = [
        (draw.randrange(250), submission(f"r{n}", draw.randrange(1, 200), draw.randrange(1, 500))) for n in range(25)
    ]
    run = Run(pages=48, seats=6)
    engine = run.play(arrivals)
    assert all_whole(engine, 25)
    assert engine.parks
    for _, sub in arrivals:
        assert engine.parks.get(sub.request_id, 0) <= 1 + sub.stop.max_tokens // (32 - 8)
    assert run.longest_idle <= 3
    assert engine.deferrals == 0


def test_an_engine_that_looks_further_ahead_than_the_runway_does_not_make_admission_thrash() -> None:
    arrivals = [(n * 3, submission(f"r{n}", 30, 300)) for n in range(12)]
    run = Run(pages=48, seats=6, lookahead=100)
    engine = run.play(arrivals)
    assert all_whole(engine, 12)
    assert max(engine.parks.values()) <= 6  # 83 where the engine's reports of pressure do not correct the books


def test_a_long_chat_is_not_starved_by_short_ones_that_keep_coming() -> None:
    """Trap 4: a 4,160-token chat waited for minutes while smaller ones were restored and parked again and again."""
    short = [(n * 20, submission(f"short {n}", 100, 60)) for n in range(200)]
    run = Run(pages=64, seats=8)
    engine = run.play([(0, submission("first", 300, 400)), (1, submission("long", 400, 500)), *short], until="long")
    assert engine.ended["long"] is FinishReason.LENGTH
    assert run.longest_wait_s["long"] <= 1000 * STEP_S


@pytest.mark.parametrize(
    ("seats", "n", "arena"),
    [
        pytest.param(1, 1, 10_000, id="one seat"),
        pytest.param(3, 1, 10_000, id="three seats"),
        pytest.param(3, 1, 0, id="by recompute"),
        pytest.param(3, 2, 10_000, id="a family that needs two of three seats"),
        pytest.param(3, 3, 0, id="a family that needs them all, by recompute"),
    ],
)
def test_the_lowest_tier_finishes_under_a_constant_stream_of_higher_ones(seats: int, n: int, arena: int) -> None:
    """Case 4: two tiers are closed after two steps of age, and what came in by age is not displaced again."""
    stream = [(turn * 25, submission(f"stream {turn}", 100, 100 * seats, 2)) for turn in range(400)]
    policy = AdmissionPolicy(age_step_s=5.0)
    run = Run(pages=64, seats=seats, policy=policy, arena=arena, recompute=True)
    engine = run.play([(1, submission("low", 50, 200, n=n)), *stream], until="low")
    assert engine.ended["low"] is FinishReason.LENGTH
    assert run.longest_wait_s["low"] <= 3 * 5.0 + 300 * seats * STEP_S


@pytest.mark.parametrize("arena", [0, 12])
def test_with_recompute_everyone_ends_whole_however_small_the_arena(arena: int) -> None:
    arrivals = [(n, submission(f"r{n}", 60, 200, n=n % 2 + 1)) for n in range(12)]
    run = Run(pages=40, seats=6, arena=arena, recompute=True)
    engine = run.play(arrivals)
    assert all_whole(engine, 12)
    assert engine.recomputes > 0
    assert engine.own_parks == 0
    assert run.longest_idle <= 20


def test_something_moves_even_where_the_arena_holds_only_a_part() -> None:
    arrivals = [(n, submission(f"r{n}", 60, 200)) for n in range(12)]
    run = Run(pages=40, seats=6, arena=12)
    engine = run.play(arrivals)
    assert len(engine.ended) == 12
    assert run.longest_idle <= 40
