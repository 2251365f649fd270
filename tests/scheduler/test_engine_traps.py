"""One test for each accounting trap of public servers that can exist in an engine; admission's are beside admission.

docs/decisions/010-accounting-traps.md lists all eighteen, and says of the others why they cannot exist here.
"""

import random

import pytest

from scheduler.messages import Deferred, Finished, FinishReason, Notice, Parked, ParkFailed, ParkMode, Restored
from scheduler.plan import CopyIn, CopyOut, CopyOutcome
from tests.scheduler.engine.rig import Rig


def running(rig: Rig, *request_ids: str, prompt: int = 8, max_tokens: int = 40, turns: int = 8) -> Rig:
    for request_id in request_ids:
        rig.admit(request_id, prompt, max_tokens)
    for _ in range(turns):
        rig.turn()
    return rig


def whole(rig: Rig, *request_ids: str) -> bool:
    return all(rig.tokens(request_id) == rig.solo(request_id) for request_id in request_ids)


def test_trap_02_a_restore_is_given_up_after_eight_failures_and_a_minute_and_never_before_both() -> None:
    rig = Rig(outcome_of=lambda order: CopyOutcome.FAILED if isinstance(order, CopyIn) else CopyOutcome.DONE)
    running(rig, "a")
    rig.park("a")
    rig.until(Parked)
    for _ in range(50):  # in half a second
        rig.restore("a")
        rig.until(Deferred)
    rig.now += 61.0
    rig.restore("a")
    assert rig.until(Finished).reason is FinishReason.ERROR
    assert rig.free == (16, 64)


def test_trap_03_alone_a_sequence_as_large_as_the_pool_comes_back() -> None:
    rig = running(Rig(pages=16), "a", prompt=50, max_tokens=15, turns=12)
    rig.park("a")
    assert rig.until(Parked).num_pages == 16
    rig.restore("a")
    rig.until(Restored)
    rig.settle()
    assert whole(rig, "a")


def test_trap_05_who_takes_over_seat_pages_and_arena_slots_sees_nothing_of_who_had_them() -> None:
    """The fake ranks leave what was written before where it is: a token drawn from it would be another."""
    rig = running(Rig(pages=8, arena=8, running=1), "first", turns=20)
    rig.park("first")
    rig.until(Parked)
    rig.cancel("first")
    rig.until(Finished)
    running(rig, "second", max_tokens=20, turns=5)
    assert rig.core.account().residents[0].num_tokens < 8 + 20
    rig.park("second")
    rig.until(Parked)
    rig.restore("second")
    rig.settle()
    assert whole(rig, "second")


def test_trap_06_choices_that_wait_for_their_shared_prompt_have_their_pages_claimed() -> None:
    rig = Rig(pages=16, step_tokens=8)
    rig.admit("family", 32, 8, n=4)  # 7 pages shared, 4 choices: 1 page each, and more to come
    rig.admit("next", 8, 8)
    rig.turn()
    assert rig.core.account().residents[0].pages_to_hold == 7 + 4
    assert rig.core.account().pages_free > 3
    assert [event.request_id for event in rig.of(Deferred)] == ["next"]


def test_trap_09_what_is_being_copied_back_counts_in_the_budget_until_it_has_landed() -> None:
    """And then all of it is free again: no buffer keeps it."""
    rig = running(Rig(pages=40, arena=4), "a", "b", turns=6)
    rig.park("a")
    assert rig.until(Parked).num_pages == 4
    rig.hold_copies = True
    rig.restore("a")
    rig.park("b")
    rig.turn()
    assert rig.of(ParkFailed, "b")
    assert rig.free[1] == 0
    rig.hold_copies = False
    rig.until(Restored, "a")
    assert rig.free[1] == 4
    rig.settle()
    assert whole(rig, "a", "b")


def test_trap_10_a_budget_that_cannot_be_allocated_makes_parks_dearer_and_stops_nothing() -> None:
    rig = running(Rig(pages=40, recompute=True, outcome_of=lambda order: CopyOutcome.FAILED), "a", "b")
    rig.park("a")
    assert rig.until(Parked).mode is ParkMode.RECOMPUTE
    assert rig.free[1] == 64
    rig.restore("a")
    rig.settle()
    assert whole(rig, "a", "b")
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED, Notice.RECOMPUTED]


def test_trap_12_nobody_is_ended_for_want_of_pages_that_a_copy_under_way_will_free() -> None:
    rig = running(Rig(pages=8, lookahead=1), "a", "b", max_tokens=20, turns=3)
    rig.hold_copies = True
    rig.park("a")
    for _ in range(200):
        rig.turn()
    rig.now += 60.0  # longer than the engine's patience in a stall
    rig.turn()
    assert not rig.of(Finished)
    rig.hold_copies = False
    rig.until(Finished, "b")
    rig.restore("a")
    rig.settle()
    assert whole(rig, "a", "b")


@pytest.mark.parametrize("seed", range(4))
def test_trap_12_each_park_and_each_return_is_told_once_whatever_crosses_them(seed: int) -> None:
    """Notices were skipped where a step returned early."""
    draw = random.Random(seed)
    rig = Rig(pages=80, arena=20, recompute=True, step_tokens=12)
    names = [f"r{n}" for n in range(4)]
    running(rig, *names, max_tokens=60, turns=1)
    for _ in range(120):
        rig.hold_copies = draw.random() < 0.5
        if draw.random() < 0.4:
            draw.choice([rig.park, rig.restore])(draw.choice(names))
        rig.turn()
    rig.hold_copies = False
    for name in names:
        rig.restore(name)
    rig.settle()
    assert whole(rig, *names)
    for name in names:
        told = [notice for notice in rig.notices(name) if notice is not Notice.RECOMPUTED]
        assert told == [Notice.PARKED, Notice.RESUMED] * (len(told) // 2)
        assert rig.notices(name).count(Notice.PARKED) == rig.said[name][-1].parks
        assert rig.notices(name).count(Notice.RECOMPUTED) == rig.said[name][-1].recomputes


@pytest.mark.parametrize("way", ["out", "back"])
def test_trap_12_a_cancel_during_a_copy_gives_nothing_away_before_the_copy_has_ended(way: str) -> None:
    rig = running(Rig(pages=8, arena=8), "a", turns=6)
    if way == "back":
        rig.park("a")
        rig.until(Parked)
    rig.hold_copies = True
    (rig.park if way == "out" else rig.restore)("a")
    rig.turn()
    rig.cancel("a")
    rig.turn()
    assert rig.finish("a") is FinishReason.CANCELLED
    assert rig.free == (4, 4)
    running(rig, "b", prompt=16, max_tokens=10, turns=4)  # wants what the copy still reads or writes
    rig.hold_copies = False
    rig.settle()
    assert whole(rig, "b")
    assert rig.free == (8, 8)


def test_trap_12_a_copy_that_half_failed_counts_for_nothing() -> None:
    """The link reports the worst of all ranks: nothing is posted, nobody is told, all is as it was."""
    rig = running(Rig(pages=40, outcome_of=lambda order: CopyOutcome.FAILED), "a", "b")
    rig.park("a")
    rig.until(ParkFailed)
    assert rig.notices("a") == []
    assert rig.free[1] == 64
    rig.settle()
    assert whole(rig, "a", "b")


def test_trap_14_what_is_computed_again_is_no_prompt_and_no_output() -> None:
    rig = running(Rig(arena=0, recompute=True), "a", prompt=10, max_tokens=30, turns=15)
    rig.park("a")
    rig.until(Parked)
    rig.restore("a")
    rig.settle()
    counters = rig.core.counters
    assert (counters.prompt_tokens, counters.generated_tokens) == (10, 30)
    assert counters.recomputed_tokens > 10
    assert whole(rig, "a")


def test_trap_15_whoever_ends_in_a_stall_is_not_one_of_the_parked() -> None:
    rig = running(Rig(pages=8, arena=4, lookahead=1), "parked", max_tokens=20, turns=6)
    rig.park("parked")
    rig.until(Parked)
    running(rig, "a", "b", prompt=4, max_tokens=26, turns=60)
    assert [(event.request_id, event.reason) for event in rig.of(Finished)] == [
        ("b", FinishReason.ERROR),
        ("a", FinishReason.LENGTH),
    ]
    rig.restore("parked")
    rig.until(Finished, "parked")
    assert whole(rig, "a", "parked")


def test_trap_16_the_pages_of_a_whole_prompt_are_kept_for_it_from_its_first_chunk() -> None:
    rig = Rig(pages=16, step_tokens=8)
    rig.admit("long", 48, 4)
    rig.turn()
    rig.admit("next", 12, 4)
    rig.turn()
    assert [event.request_id for event in rig.of(Deferred)] == ["next"]
    rig.settle()
    assert whole(rig, "long")


@pytest.mark.parametrize("n", [2, 3, 8])
def test_trap_17_any_number_of_choices_that_can_run_runs_and_more_end_with_the_reason(n: int) -> None:
    rig = Rig(pages=40, running=3)
    rig.admit("family", 6, 8, n=n)
    rig.settle()
    if n > 3:
        assert rig.of(Finished)[0].error == "n is 8; at least 1 and at most 3 choices can run at once"
        return
    assert all(rig.tokens("family", choice) == rig.solo("family", choice=choice) for choice in range(n))


def test_trap_18_one_parked_in_the_middle_of_its_prompt_is_ended_by_no_timer() -> None:
    rig = Rig(pages=40, step_tokens=8)
    rig.admit("a", 60, 8)
    for _ in range(3):
        rig.turn()
    assert rig.tokens("a") == []
    rig.park("a")
    rig.until(Parked)
    rig.now += 7200.0
    rig.turn()
    rig.restore("a")
    rig.settle()
    assert whole(rig, "a")


def test_trap_18_one_that_waits_for_a_page_is_not_given_up_while_others_get_tokens() -> None:
    """Without a token of its own it counted as stuck, though three others decoded."""
    rig = Rig(pages=6, page_size=16, arena=0, lookahead=1)
    rig.admit("first", 16, 30)
    rig.admit("waits", 28, 30)  # has the third page like the other, and wants a fourth ten steps earlier
    while len(rig.tokens("waits")) < 20:
        rig.turn()
    before = len(rig.tokens("first"))
    for _ in range(8):
        rig.now += 9.0
        rig.turn()
    assert len(rig.tokens("waits")) < 23 < before + 6 < len(rig.tokens("first"))
    assert not rig.of(Finished)
    rig.settle()
    assert whole(rig, "first", "waits")


def test_trap_18_the_budget_of_the_arena_is_counted_in_pages_of_all_that_is_parked() -> None:
    """One budget was exact for one pool while several were parked: here the last page counts, for everybody."""
    outs: list[CopyOut] = []

    def outcome(order: CopyOut | CopyIn) -> CopyOutcome:
        outs.extend([order] if isinstance(order, CopyOut) else [])
        return CopyOutcome.DONE

    rig = running(Rig(pages=40, arena=7, outcome_of=outcome), "a", "b", "c", turns=6)
    for request_id in ("a", "b", "c"):
        rig.park(request_id)
    rig.settle()
    assert len(rig.of(Parked)) == 1 + (sum(len(order.arena_ids) for order in outs) > 4)
    assert sum(len(order.arena_ids) for order in outs) == 7 - rig.free[1]
    assert rig.of(ParkFailed)
