"""Orders that meet a copy under way, or what is so already: each is carried out in its turn, and answered."""

import pytest

from scheduler.messages import Notice, Parked, ParkFailed, Restored
from scheduler.plan import CopyOutcome
from tests.scheduler.engine.rig import Rig


def parked() -> Rig:
    """One sequence lies in the arena."""
    rig = Rig()
    rig.admit("a", prompt=6, max_tokens=12)
    rig.turn()
    rig.park("a")
    rig.settle()
    assert rig.of(Parked)
    return rig


@pytest.mark.parametrize("first_turns", [0, 1, 2])
def test_a_restore_ordered_while_the_copy_out_is_under_way_is_carried_out_after_it(first_turns: int) -> None:
    rig = Rig()
    rig.admit("a", max_tokens=12)
    for _ in range(first_turns):
        rig.turn()
    rig.plan_all()
    rig.park("a")
    rig.restore("a")
    rig.settle()
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED]
    assert len(rig.of(Parked)) == len(rig.of(Restored)) == 1
    assert rig.tokens("a") == rig.solo("a")


def test_a_park_ordered_while_the_copy_in_is_under_way_is_carried_out_after_it() -> None:
    rig = parked()
    rig.restore("a")
    rig.plan()
    rig.park("a")
    rig.settle()
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED, Notice.PARKED]
    rig.restore("a")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a") and rig.said["a"][-1].parks == 2


def test_an_order_for_what_is_so_already_is_answered_without_a_notice() -> None:
    rig = parked()
    rig.park("a")
    rig.plan()
    assert [(event.request_id, event.num_pages) for event in rig.of(Parked)] == [("a", 2), ("a", 2)]
    rig.restore("a")
    rig.until(Restored)
    rig.restore("a")
    rig.plan()
    assert [event.request_id for event in rig.of(Restored)] == ["a", "a"]
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED]


def test_the_last_order_wins_while_a_copy_is_under_way() -> None:
    rig = Rig()
    rig.admit("a", max_tokens=12)
    rig.turn()
    for order in (rig.park, rig.restore, rig.park):
        order("a")
    rig.settle()
    assert rig.notices("a") == [Notice.PARKED] and rig.free[1] < 64
    for order in (rig.restore, rig.park, rig.restore):
        order("a")
    rig.settle()
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED] and rig.tokens("a") == rig.solo("a")


def test_a_failed_park_answers_the_restore_that_waited_for_it() -> None:
    rig = Rig(outcome_of=lambda order: CopyOutcome.FAILED)
    rig.admit("a", max_tokens=12)
    rig.turn()
    rig.park("a")
    rig.restore("a")
    rig.settle()
    assert len(rig.of(ParkFailed)) == len(rig.of(Restored)) == 1 and rig.notices("a") == []
    assert rig.tokens("a") == rig.solo("a")
