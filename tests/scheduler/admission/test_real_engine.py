"""Admission and the real engine core face to face, over fake ranks whose tokens tell when a page went astray."""

import random

import pytest

from scheduler.admission import GroupCapacity, HoldTerms
from scheduler.messages import FinishReason, Notice, ParkReason, Submission
from tests.scheduler.admission.real_engine import RealEngine, chat, solo
from tests.scheduler.admission.test_machine import meddle
from tests.scheduler.admission.world import Plot, World

PAGE = 16
# The engine waits for 10 s before it helps itself: 334 steps.
MOST_IDLE_STEPS = 500


class Duo(World):
    """One real engine and its admission."""

    def __init__(self, *, pages: int, seats: int = 8, arena: int = 4000, recompute: bool = True) -> None:
        capacity = GroupCapacity(
            group_id="g", num_pages=pages, page_size=PAGE, seats=seats, max_model_len=4000, recompute=recompute
        )
        super().__init__([Plot(capacity=capacity, arena_pages=arena, make=RealEngine)], MOST_IDLE_STEPS)
        self.may_defer = True  # the engine has a forecast of its own

    @property
    def engine(self) -> RealEngine:
        engine = self.engines["g"]
        assert isinstance(engine, RealEngine)
        return engine

    def send(self, *subs: Submission) -> None:
        for sub in subs:
            self.submit(sub)

    def steps_on(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def says(self, request_id: str, choice: int = 0) -> list[int]:
        return self.engine.text.get((request_id, choice), [])

    def end(self) -> int:
        """Everyone ends; how many texts were whole."""
        self.settle()
        return self.engine.check_texts(self.subs)


@pytest.mark.parametrize("arena", [4000, 20, 0], ids=["ample arena", "small arena", "recompute only"])
def test_four_chats_of_three_and_a_half_pools_end_whole_and_equal_to_their_solo_runs(arena: int) -> None:
    duo = Duo(pages=64, seats=4, arena=arena)
    duo.send(*(chat(f"chat {n}", 100, 800, 10 if n == 2 else 0) for n in range(4)))
    assert duo.end() == 4
    assert next(iter(duo.ended)) == "chat 2"
    assert "chat 2" not in duo.engine.parks
    assert 3 <= sum(map(len, duo.engine.parks.values())) <= 10
    assert duo.engine.ordered_parks == sum(map(len, duo.engine.parks.values()))  # the engine never had to help itself


def test_families_crowd_a_pool_and_every_choice_ends_whole() -> None:
    duo = Duo(pages=40, seats=8, arena=60)
    duo.send(*(chat(f"family {n}", 40, 150, n=n % 2 + 2) for n in range(6)))
    assert duo.end() == 3 * 2 + 3 * 3
    assert len(duo.engine.parks) >= 2


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_mixed_day_ends_with_every_text_whole_and_nothing_left_behind(seed: int, recompute: bool) -> None:
    draw = random.Random(seed)
    duo = Duo(pages=40, seats=5, arena=60 if recompute else 4000, recompute=recompute)
    for turn in range(350):
        duo.step()
        if len(duo.alive) < 12:
            n, priority = draw.choice([1, 1, 2, 3]), draw.choice([0, 0, 0, 1, 5])
            duo.send(chat(f"r{turn}", draw.randrange(1, 300), draw.randrange(1, 120), priority, n, stops=n > 1))
        if draw.random() < 0.5:
            meddle(duo, draw)
        if draw.random() < 0.01:
            duo.fail_copies(1)
        if draw.random() < 0.02:
            duo.lag(draw.randrange(4), draw.randrange(4))
    assert duo.end() > 10
    assert duo.engine.parks


def test_each_restore_is_worth_its_copy_with_the_real_lookahead_too() -> None:
    duo = Duo(pages=48, seats=6)
    duo.send(*(chat(f"r{n}", 30 + 11 * n, 250) for n in range(10)))
    assert duo.end() == 10
    parks = [len(each) for each in duo.engine.parks.values()]
    assert max(parks) <= 1 + 250 // (32 - 8)
    assert sum(parks) <= 30
    assert duo.deferrals <= 3


def test_who_survived_a_shortage_goes_in_the_next_one_when_an_urgent_request_has_come() -> None:
    duo = Duo(pages=40)
    duo.send(chat("survivor", 100, 500), chat("other", 60, 500))
    while duo.core.status(duo.now).groups[0].survivor_id is None:
        duo.step()
    duo.cancel("other")
    duo.steps_on(20)
    assert duo.core.status(duo.now).groups[0].survivor_id is None
    duo.send(chat("vip", 60, 300, 10))
    assert duo.end() == 2
    assert duo.engine.parks == {"survivor": [ParkReason.PRESSURE]}
    assert list(duo.ended) == ["other", "vip", "survivor"]


def test_a_parked_family_waits_for_the_seats_and_pages_of_those_choices_only_that_still_live() -> None:
    duo = Duo(pages=200, seats=3)
    family = chat("family", 40, 400, n=2, stops=True)
    ends = [len(solo(family, choice)) for choice in range(2)]
    assert ends[0] < ends[1]
    duo.send(family)
    while len(duo.says("family")) < ends[0]:
        duo.step()
    duo.park("family", HoldTerms())  # the stop token of one choice is on its way
    duo.steps_on(5)
    row = duo.core.row("family", duo.now)
    assert row is not None
    assert (row.state, row.seats, row.tokens) == ("parked", 1, 40 + ends[0] + len(duo.says("family", 1)))
    duo.send(chat("a", 20, 500), chat("b", 20, 500))
    duo.steps_on(10)
    duo.unpark("family")
    duo.steps_on(5)
    assert [each.state for each in duo.core.status(duo.now).requests] == ["resident"] * 3
    assert duo.end() == 4


def test_the_tokens_of_a_row_never_fall_and_are_all_that_was_said_when_it_ends() -> None:
    duo = Duo(pages=60)
    family = chat("family", 40, 400, n=3, stops=True)
    duo.send(family)
    tokens = []
    while (row := duo.core.row("family", duo.now)) is not None:
        tokens.append(row.tokens)
        duo.step()
    assert tokens == sorted(tokens)
    assert tokens[-1] > 40 + sum(len(duo.says("family", choice)) for choice in range(2))
    assert duo.end() == 3


def test_an_urgent_request_displaces_a_running_one_and_both_texts_are_whole() -> None:
    duo = Duo(pages=64, seats=1)
    duo.send(chat("low", 50, 100))
    duo.steps_on(10)
    duo.send(chat("high", 50, 30, 1))
    assert duo.end() == 2
    assert list(duo.ended) == ["high", "low"]
    assert duo.engine.parks == {"low": [ParkReason.SEAT]}


@pytest.mark.parametrize(("arena", "notices"), [(4000, []), (0, [Notice.RECOMPUTED])], ids=["copied", "recomputed"])
def test_a_chat_is_held_while_others_run_and_goes_on_where_it_stopped(arena: int, notices: list[Notice]) -> None:
    duo = Duo(pages=64, arena=arena)
    duo.send(chat("approval", 50, 200), chat("other", 50, 400, n=2))
    duo.steps_on(60)
    duo.park("approval", HoldTerms())
    duo.steps_on(5)
    said = list(duo.says("approval"))
    assert 30 < len(said) < 200
    duo.steps_on(100)
    assert duo.says("approval") == said
    assert duo.core.status(duo.now).groups[0].pages_free == 64 - duo.engine.core.account().residents[0].num_pages
    duo.unpark("approval")
    assert duo.end() == 3
    assert duo.engine.notices["approval"] == [Notice.PARKED, Notice.RESUMED, *notices]


def test_the_last_resident_is_held_and_the_engine_rests() -> None:
    duo = Duo(pages=64)
    duo.send(chat("a", 50, 100, n=2))
    duo.steps_on(20)
    duo.park("a", HoldTerms(deadline_s=3.0))
    duo.steps_on(10)
    row = duo.core.row("a", duo.now)
    assert row is not None and row.state == "parked"
    generated = duo.generated
    duo.steps_on(50)
    assert duo.generated == generated
    duo.steps_on(60)  # its deadline has come
    assert duo.generated > generated
    assert duo.end() == 2


def test_without_arena_and_recompute_the_victim_runs_on_and_new_requests_wait_outside() -> None:
    duo = Duo(pages=20, seats=4, arena=0, recompute=False)
    duo.send(chat("a", 100, 150), chat("b", 20, 150))
    while not duo.core.status(duo.now).exhausted:
        duo.step()
    assert duo.alive == ["a", "b"]
    assert not duo.submit(chat("c", 20, 20))
    duo.settle()
    assert not duo.core.status(duo.now).exhausted
    assert duo.engine.check_texts(duo.subs) == 1
    assert sorted(duo.ended.values()) == [FinishReason.ERROR, FinishReason.LENGTH]


def test_where_residents_wait_for_more_than_is_free_no_page_is_unclaimed() -> None:
    duo = Duo(pages=64, seats=4, arena=10, recompute=False)
    duo.send(*(chat(f"chat {n}", 100, 800) for n in range(4)))
    unclaimed, overdrawn = [], False
    while duo.alive:
        duo.step()
        overdrawn |= duo.core._books.ledgers["g"].room().pages < 0
        unclaimed.append(duo.core.status(duo.now).groups[0].pages_unclaimed)
    assert overdrawn
    assert min(unclaimed) == 0


def test_a_family_says_what_its_choices_would_say_alone() -> None:
    duo = Duo(pages=64)
    family = chat("family", 100, 50, n=3)
    duo.send(family)
    duo.end()
    assert [duo.says("family", choice) for choice in range(3)] == [solo(family, choice) for choice in range(3)]
