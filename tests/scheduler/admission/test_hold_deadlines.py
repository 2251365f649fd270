"""A hold ends by itself at its deadline, by an unpark or by a cancel."""

import math

import pytest

from scheduler.admission import HoldEnd, HoldTerms
from scheduler.admission.hold import HoldClock
from scheduler.messages import FinishReason
from tests.scheduler.admission.desk import Desk, held_desk


def test_at_its_deadline_it_is_unparked() -> None:
    desk = held_desk()
    desk.park("a", 10.0)
    assert desk.core.next_deadline == 10.0
    desk.now = 4.0
    row = desk.row("a")
    assert (row.hold_left_s, row.then) == (6.0, "unpark")
    assert desk.wait(5.9) == []
    assert desk.wait(0.1) == ["restore a"]
    assert desk.core.next_deadline is None
    assert not desk.row("a").held


def test_at_its_deadline_it_is_cancelled() -> None:
    desk = held_desk()
    desk.park("a", 10.0, HoldEnd.CANCEL)
    assert desk.row("a").then == "cancel"
    assert desk.wait(10.0) == ["cancel a"]
    assert desk.wait(10.0) == []
    desk.finished("a", FinishReason.CANCELLED)
    assert desk.live() == {"b"}


def test_a_queued_one_is_gone_at_its_deadline_and_no_engine_hears_of_it() -> None:
    desk = Desk(seats=1)
    desk.submit("running")
    desk.submit("a")
    desk.park("a", 10.0, HoldEnd.CANCEL)
    assert desk.wait(10.0) == []
    assert desk.live() == {"running"}


def test_new_terms_take_the_place_of_the_old_ones_and_count_from_now() -> None:
    desk = held_desk()
    desk.park("a", 10.0, HoldEnd.CANCEL)
    desk.now = 8.0
    desk.park("a", 10.0)
    assert desk.core.next_deadline == 18.0
    assert desk.wait(2.0) == []
    desk.park("a")
    assert desk.core.next_deadline is None
    assert desk.wait(1000.0) == []
    assert desk.row("a").held


def test_the_next_deadline_is_the_first_of_those_in_force() -> None:
    desk = Desk(seats=1)
    for request_id in ("running", "a", "b", "c"):
        desk.submit(request_id)
    desk.park("a", 30.0)
    desk.park("b", 10.0)
    desk.park("c", 20.0)
    assert desk.core.next_deadline == 10.0
    desk.unpark("b")
    assert desk.core.next_deadline == 20.0
    desk.cancel("c")
    assert desk.core.next_deadline == 30.0


def test_a_jump_of_the_clock_ends_every_hold_that_it_passes_in_the_order_of_their_deadlines() -> None:
    desk = Desk(seats=2)
    desk.submit("a")
    desk.submit("b")
    desk.progress()
    desk.park("a", 20.0, HoldEnd.CANCEL)
    desk.park("b", 10.0)
    desk.parked("a")
    desk.parked("b")
    assert desk.wait(3600.0) == ["cancel a", "restore b"]


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, math.inf, math.nan])
def test_a_deadline_that_is_none_is_refused(deadline_s: float) -> None:
    with pytest.raises(ValueError, match="must be more than 0 and finite"):
        HoldTerms(deadline_s)


def test_a_deadline_replaced_again_and_again_keeps_nothing_of_the_old_ones() -> None:
    clock = HoldClock()
    for turn in range(10_000):
        clock.start("a", HoldTerms(1000.0 + turn), 0.0)
    assert len(clock._deadlines) <= 67
    assert clock.next_deadline() == 10_999.0
