"""Copies beside the steps: others go on, and an end of any kind is legal while one is under way.

Trap 12 of the accounting: nobody ends because a park is in flight, and a cancel waits for the copy with what it owns.
"""

from collections.abc import Callable

import pytest

from scheduler.engine import PlanMismatch
from scheduler.messages import Finished, FinishReason, Notice, Parked, Restored
from scheduler.plan import CopyOutcome, CopyResult
from tests.scheduler.engine.rig import Rig


def copying_out(**sizes: int) -> Rig:
    """ "a" is being copied out; its plan is answered, the copy has not ended."""
    rig = Rig(hold_copies=True, recompute=True, **sizes)  # type: ignore[arg-type]
    rig.admit("a", prompt=6, max_tokens=30)
    rig.turn()
    rig.park("a")
    for _ in range(3):
        rig.turn()
    assert rig.core.num_inflight == 0 and rig.ranks.can_land == [0]
    return rig


def copying_in() -> Rig:
    """ "a" is being copied in."""
    rig = copying_out()
    rig.land()
    rig.restore("a")
    rig.turn()
    assert rig.core.num_inflight == 0 and rig.ranks.can_land == [1]
    return rig


def test_others_are_computed_while_one_is_copied_out_and_in() -> None:
    rig = copying_out(pages=30)
    rig.admit("b", prompt=4, max_tokens=40)
    for _ in range(10):
        rig.turn()
    assert len(rig.tokens("b")) >= 8 and rig.of(Parked) == []
    rig.land()
    rig.restore("a")
    for _ in range(10):
        rig.turn()
    assert len(rig.tokens("b")) >= 18 and rig.of(Restored) == []
    rig.land()
    rig.settle()
    assert all(rig.tokens(name) == rig.solo(name) for name in "ab")


def test_while_a_copy_is_all_there_is_nothing_is_planned_and_no_clock_is_set() -> None:
    rig = copying_out()
    plans = len(rig.ranks.plans)
    assert rig.plan() is None and rig.core.wake_at is None
    rig.now += 100.0
    assert rig.plan() is None and len(rig.ranks.plans) == plans
    rig.land()
    rig.restore("a")
    rig.turn()
    assert rig.plan() is None and rig.core.wake_at is None


@pytest.mark.parametrize("outcome", list(CopyOutcome))
@pytest.mark.parametrize("begin", [copying_out, copying_in])
def test_what_ends_during_a_copy_keeps_its_pages_and_slots_until_the_copy_has_ended(
    begin: Callable[[], Rig], outcome: CopyOutcome
) -> None:
    rig = begin()
    rig.ranks.outcome_of = lambda order: outcome
    before = rig.free
    rig.cancel("a")
    rig.plan_all()
    assert rig.finish("a") is FinishReason.CANCELLED, "the client is told at once"
    rig.answer()
    assert rig.free == before == (14, 62) and rig.of(Finished) == []
    rig.land()
    assert rig.free == (16, 64)
    assert [event.reason for event in rig.of(Finished)] == [FinishReason.CANCELLED]
    plan = rig.plan()
    assert plan is not None and plan.freed_arena_ids == (0, 1) and plan.chunks == ()
    rig.answer()
    assert rig.core.is_idle and rig.ranks.used_slots == set()


def test_pages_under_copy_are_not_given_to_a_newcomer() -> None:
    rig = copying_out(pages=4)
    rig.cancel("a")
    rig.admit("b", prompt=12, max_tokens=2)
    rig.settle()
    assert rig.tokens("b") == []
    rig.land()
    rig.cancel("b")
    rig.admit("c", prompt=12, max_tokens=2)
    rig.settle()
    assert rig.tokens("c") == rig.solo("c")


@pytest.mark.parametrize("begin", [copying_out, copying_in])
def test_lost_ranks_end_what_is_being_copied_and_a_late_end_of_it_is_nobodys(begin: Callable[[], Rig]) -> None:
    rig = begin()
    rig.core.fail_all("rank 1 died", rig.now)
    rig.listen()
    assert rig.free == (16, 64) and rig.core.is_idle
    assert (rig.finish("a"), rig.said["a"][-1].error) == (FinishReason.ERROR, "rank 1 died")
    rig.core.apply_copy(CopyResult(copy_id=0, outcome=CopyOutcome.DONE), rig.now)
    rig.core.check_integrity()
    assert rig.core.take_events() == [] and rig.core.take_tokens() == {}


def test_an_end_of_no_copy_is_refused() -> None:
    rig = copying_out()
    with pytest.raises(PlanMismatch, match=r"the ranks ended copy 5; under way are \[0\]"):
        rig.core.apply_copy(CopyResult(copy_id=5, outcome=CopyOutcome.DONE), 0.0)
    rig.land()
    with pytest.raises(PlanMismatch, match=r"the ranks ended copy 0; under way are \[\]"):
        rig.core.apply_copy(CopyResult(copy_id=0, outcome=CopyOutcome.DONE), 0.0)


def test_an_end_that_overtook_the_answer_of_an_earlier_plan_waits_for_it() -> None:
    rig = Rig(inflight=2, hold_copies=True)
    rig.admit("a", prompt=6, max_tokens=30)
    rig.plan()
    rig.park("a")
    rig.plan()
    early = CopyResult(copy_id=0, outcome=CopyOutcome.DONE)
    rig.core.apply_copy(early, rig.now)
    assert rig.of(Parked) == [] and rig.free == (14, 62)
    rig.ranks.copies[0].step = 0  # on the ranks the copy had ended before the answer was read
    result = rig.ranks.land()
    assert result.copy_id == 0
    rig.answer()
    assert len(rig.of(Parked)) == 1 and rig.tokens("a") == rig.solo("a", 1)
    rig.restore("a")
    rig.hold_copies = False
    rig.settle()
    assert rig.tokens("a") == rig.solo("a")


def test_two_copies_may_end_in_any_order() -> None:
    rig = Rig(hold_copies=True)
    for name in "ab":
        rig.admit(name, prompt=6, max_tokens=12)
    rig.turn()
    rig.park("a")
    rig.park("b")
    for _ in range(3):
        rig.turn()
    rig.land(1)
    rig.land(0)
    assert [event.request_id for event in rig.of(Parked)] == ["b", "a"]
    rig.restore("a")
    rig.restore("b")
    rig.turn()
    rig.land(3)
    rig.land(2)
    rig.hold_copies = False
    rig.settle()
    assert all(rig.tokens(name) == rig.solo(name) for name in "ab")
    assert all(rig.notices(name) == [Notice.PARKED, Notice.RESUMED] for name in "ab")


def test_slots_that_nothing_was_copied_to_are_given_back_without_a_word_to_the_ranks() -> None:
    rig = Rig()
    rig.admit("a", prompt=6, max_tokens=30)
    rig.turn()
    rig.park("a")
    rig.cancel("a")
    rig.settle()
    assert rig.free == (16, 64) and rig.core.is_idle
    assert all(plan.freed_arena_ids == () and plan.copies_out == () for plan in rig.ranks.plans)


def test_who_waits_for_pages_that_are_being_copied_out_is_not_stalled() -> None:
    rig = Rig(pages=8, page_size=4, lookahead=4, hold_copies=True)
    rig.admit("a", prompt=4, max_tokens=17)
    rig.admit("b", prompt=4, max_tokens=17)
    rig.settle()
    assert rig.core.wake_at is not None, "both wait for a page"
    rig.park("b")
    rig.settle()
    rig.now += 1000.0
    assert rig.plan() is None and rig.core.wake_at is None and rig.finish("a") is rig.finish("b") is None
    rig.hold_copies = False
    rig.settle()
    assert rig.tokens("a") == rig.solo("a") and [event.request_id for event in rig.of(Parked)] == ["b"]
