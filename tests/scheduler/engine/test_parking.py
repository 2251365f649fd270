"""Out to the arena and back, at every moment of a sequence's life."""

import pytest

from scheduler.messages import (
    Deferred,
    Finished,
    FinishReason,
    Notice,
    Parked,
    ParkFailed,
    ParkMode,
    ParkReason,
    Pressure,
    Restored,
)
from scheduler.plan import CopyIn, CopyOut, CopyOutcome, PageReset
from tests.fakes import solo_run
from tests.scheduler.engine.rig import Rig, submission


def test_a_park_copies_exactly_the_pages_held_and_frees_them_when_the_copy_has_landed() -> None:
    rig = Rig(page_size=4, inflight=1, hold_copies=True)
    rig.admit("a", prompt=6, max_tokens=50)
    rig.turn()
    rig.park("a")
    plan = rig.plan()
    assert plan is not None
    assert plan.copies_out == (CopyOut(copy_id=0, page_ids=(0, 1), arena_ids=(0, 1)),)
    assert plan.chunks == () and rig.free == (14, 62)
    rig.answer()
    assert rig.free == (14, 62) and rig.of(Parked) == [], "the plan is answered, the copy is not"
    assert rig.plan() is None and rig.core.wake_at is None
    rig.land()
    assert rig.free == (16, 62)
    (parked,) = rig.of(Parked)
    assert (parked.request_id, parked.num_pages, parked.load.pages_free) == ("a", 2, 16)
    assert (parked.mode, parked.reason) == (ParkMode.COPY, ParkReason.PRESSURE)
    assert (parked.copy_s, parked.copy_bytes) == (0.5, 64)
    assert parked.load.residents == ()
    assert [(event.notice, event.parks) for event in rig.said["a"]] == [(None, 0), (Notice.PARKED, 1)]


def test_a_restore_takes_pages_at_once_and_frees_the_arena_when_the_copy_has_landed() -> None:
    rig = Rig(page_size=4, inflight=1, hold_copies=True)
    rig.admit("a", prompt=6, max_tokens=50)
    rig.turn()
    rig.park("a")
    rig.turn()
    rig.land()
    rig.now += 1.0
    rig.restore("a")
    plan = rig.plan()
    assert plan is not None
    assert plan.copies_in == (CopyIn(copy_id=1, arena_ids=(0, 1), page_ids=(0, 1)),)
    assert plan.chunks == () and rig.free == (14, 62)
    rig.answer()
    assert rig.free == (14, 62) and rig.of(Restored) == []
    rig.land()
    assert rig.free == (14, 64)
    (restored,) = rig.of(Restored)
    assert (restored.request_id, restored.mode, restored.reason) == ("a", ParkMode.COPY, "")
    assert (restored.copy_s, restored.copy_bytes) == (0.5, 64)
    resumed = rig.said["a"][-1]
    assert (resumed.notice, resumed.parks, resumed.recomputes) == (Notice.RESUMED, 1, 0)
    assert resumed.parked_s == pytest.approx(1.0)


def test_what_came_back_is_computed_in_the_next_plan_with_its_new_page_table() -> None:
    rig = Rig(page_size=4, inflight=1)
    rig.admit("a", prompt=6, max_tokens=50)
    rig.turn()
    rig.park("a")
    rig.turn()
    rig.admit("b", prompt=4, max_tokens=50)
    rig.turn()
    rig.restore("a")
    rig.turn()
    plan = rig.plan()
    assert plan is not None
    assert plan.resets == (PageReset(seq_id=0, page_ids=(1, 2), num_computed=6),)
    assert plan.freed_arena_ids == (0, 1)
    assert [(chunk.seq_id, chunk.start) for chunk in plan.chunks] == [(0, 6), (1, 5)]
    assert rig.ranks.used_slots == set()


@pytest.mark.parametrize("inflight", [1, 2])
@pytest.mark.parametrize("turns", range(12))
def test_a_park_at_any_step_neither_loses_nor_doubles_a_token(turns: int, inflight: int) -> None:
    rig = Rig(inflight=inflight, step_tokens=8)
    rig.admit("a", prompt=19, max_tokens=9)
    for _ in range(turns):
        rig.turn()
    rig.park("a")
    rig.settle()
    if not rig.of(Finished):
        assert rig.free[0] == 16 and len(rig.of(Parked)) == 1
        rig.restore("a")
        rig.settle()
    assert rig.tokens("a") == rig.solo("a") and rig.finish("a") is FinishReason.LENGTH
    assert rig.notices("a") in ([Notice.PARKED, Notice.RESUMED], [])
    assert rig.free == (16, 64) and rig.core.is_idle


@pytest.mark.parametrize("at", range(1, 6))
def test_a_stop_token_in_flight_when_the_park_is_ordered_ends_the_stream_once(at: int) -> None:
    rig = Rig(inflight=2)
    stop = solo_run(submission("a").prompt_tokens, 0, 1000, at + 1)[at]
    rig.admit("a", max_tokens=50, stop_ids=(stop,))
    for _ in range(at):
        rig.turn()
    rig.plan_all()
    rig.park("a")
    rig.settle()
    assert rig.finish("a") is FinishReason.STOP and rig.tokens("a") == rig.solo("a")
    assert rig.of(Parked) == [] and len(rig.of(Finished)) == 1 and rig.notices("a") == []
    assert rig.free == (16, 64) and rig.core.is_idle


def test_a_sequence_without_a_computed_token_parks_with_no_page_and_no_order() -> None:
    rig = Rig(step_tokens=8)
    rig.admit("a", prompt=8)
    rig.admit("b", prompt=8, max_tokens=3)
    rig.plan()
    rig.park("b")
    rig.plan_all()
    assert [(event.request_id, event.num_pages) for event in rig.of(Parked)] == [("b", 0)]
    assert all(not plan.copies_out for plan in rig.ranks.plans)
    rig.restore("b")
    rig.settle()
    assert rig.notices("b") == [Notice.PARKED, Notice.RESUMED]
    assert rig.tokens("b") == rig.solo("b") and rig.tokens("a") == rig.solo("a")


def test_others_go_on_while_one_is_out() -> None:
    rig = Rig()
    rig.admit("a", max_tokens=20)
    rig.admit("b", max_tokens=20)
    rig.turn()
    rig.park("a")
    rig.settle()
    assert rig.tokens("b") == rig.solo("b") and len(rig.tokens("a")) < 20
    rig.restore("a")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a")


def test_a_victim_that_the_arena_cannot_take_runs_on() -> None:
    rig = Rig(arena=1)
    rig.admit("a", prompt=6, max_tokens=9)
    rig.turn()
    rig.park("a")
    rig.settle()
    (refused,) = rig.of(ParkFailed)
    assert refused.reason == "it holds 2 pages, and 1 of the 1 pages of the host RAM budget are free"
    assert rig.tokens("a") == rig.solo("a") and rig.notices("a") == []


def test_with_parking_off_a_park_is_refused() -> None:
    rig = Rig(park=False)
    rig.admit("a")
    rig.turn()
    rig.park("a")
    rig.settle()
    assert [event.reason for event in rig.of(ParkFailed)] == ["parking is off"]
    assert rig.tokens("a") == rig.solo("a")


@pytest.mark.parametrize("inflight", [1, 2])
def test_without_recompute_a_victim_whose_copy_fails_runs_on_and_the_arena_is_given_back(inflight: int) -> None:
    rig = Rig(inflight=inflight, outcome_of=lambda order: CopyOutcome.FAILED)
    rig.admit("a", prompt=6, max_tokens=9)
    rig.turn()
    rig.park("a")
    rig.settle()
    assert [event.reason for event in rig.of(ParkFailed)] == [
        "the copy to host RAM failed on a rank: the copy is failed"
    ]
    assert rig.of(Parked) == [] and rig.free == (16, 64)
    assert rig.tokens("a") == rig.solo("a") and rig.said["a"][-1].parks == 0


def parked(rig: Rig, request_id: str = "a") -> None:
    """Bring one sequence out to the arena."""
    rig.admit(request_id, prompt=6, max_tokens=12)
    rig.turn()
    rig.park(request_id)
    rig.settle()
    assert rig.of(Parked, request_id)


def test_without_recompute_a_failed_restore_stays_parked_and_a_later_one_brings_it_back() -> None:
    outcome = [CopyOutcome.DONE]
    rig = Rig(outcome_of=lambda order: outcome[0])
    parked(rig)
    before = rig.free
    outcome[0] = CopyOutcome.CORRUPT
    rig.restore("a")
    rig.settle()
    assert [event.request_id for event in rig.of(Deferred)] == ["a"]
    assert rig.free == before and rig.notices("a") == [Notice.PARKED]
    outcome[0] = CopyOutcome.DONE
    rig.restore("a")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a") and rig.notices("a") == [Notice.PARKED, Notice.RESUMED]
    assert (rig.core.counters.copies, rig.core.counters.corrupt_copies) == (2, 1)


def test_without_recompute_restores_are_given_up_after_eight_failures_and_a_minute_not_before() -> None:
    outcome = [CopyOutcome.DONE]
    rig = Rig(outcome_of=lambda order: outcome[0])
    parked(rig)
    outcome[0] = CopyOutcome.FAILED
    for _ in range(10):
        rig.restore("a")
        rig.settle()
    assert rig.finish("a") is None and len(rig.of(Deferred)) == 10
    rig.now += 60.0
    rig.restore("a")
    rig.settle()
    assert rig.said["a"][-1].error == "11 copies from host RAM failed in a row"
    assert rig.finish("a") is FinishReason.ERROR and rig.core.is_idle and rig.free == (16, 64)
    assert rig.ranks.used_slots == set()


def test_a_restore_without_room_is_deferred_and_nothing_is_taken() -> None:
    rig = Rig(pages=8, page_size=4)
    parked(rig)
    rig.admit("b", prompt=20, max_tokens=12)
    rig.turn()
    before = rig.free
    rig.restore("a")  # 2 pages and its margin, beside b's 5 and b's margin
    rig.plan_all()
    assert [event.request_id for event in rig.of(Deferred)] == ["a"] and rig.free == before
    rig.cancel("b")
    rig.settle()
    rig.restore("a")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a")


def test_a_restore_needs_a_seat() -> None:
    rig = Rig(running=1)
    parked(rig)
    rig.admit("b")
    rig.turn()
    rig.restore("a")
    rig.plan_all()
    assert [event.request_id for event in rig.of(Deferred)] == ["a"]


def test_alone_a_parked_sequence_comes_back_though_no_margin_is_left() -> None:
    rig = Rig(pages=2, page_size=4)
    rig.admit("a", prompt=7, max_tokens=9)
    rig.turn()
    rig.park("a")
    rig.settle()
    rig.restore("a")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a", 2) and rig.finish("a") is FinishReason.LENGTH


@pytest.mark.parametrize("pages", range(9, 14))
def test_what_comes_back_under_its_claim_does_not_bring_pressure_with_it(pages: int) -> None:
    rig = Rig(pages=pages, page_size=4, lookahead=4, inflight=1)
    parked(rig)
    rig.admit("b", prompt=20, max_tokens=60)
    rig.turn()
    rig.restore("a")
    rig.plan()
    assert rig.of(Pressure) == []
    assert bool(rig.of(Deferred)) == (pages < 12), "4 pages claimed by a, 8 by b"
