"""A cancel is right in every state, once, and gives everything back."""

import pytest

from scheduler.messages import FinishReason
from tests.scheduler.admission.desk import Desk


def parked_desk() -> Desk:
    """`low` is parked; `high` has its seat."""
    desk = Desk(seats=1)
    desk.submit("low")
    desk.progress()
    assert desk.submit("high", priority=1) == ["park low"]
    assert desk.parked("low") == ["admit high"]
    return desk


def assert_gone(desk: Desk, request_id: str) -> None:
    assert desk.cancel(request_id) == []  # once only
    desk.finished(request_id, FinishReason.CANCELLED)
    assert request_id not in desk.live()
    assert desk.cancel(request_id) == []


def test_a_queued_request_is_gone_at_once_and_no_engine_hears_of_it() -> None:
    """Case E3: cancelled while queued, it must never run."""
    desk = Desk(seats=1)
    desk.submit("a")
    desk.submit("b")
    desk.submit("c")
    assert desk.cancel("b") == []
    assert desk.live() == {"a", "c"}
    assert desk.finished("a") == ["admit c"]


def test_cancelling_a_blocked_head_lets_the_next_one_in() -> None:
    desk = Desk(pages=20)
    desk.submit("a", 160)
    desk.submit("big", 240)
    desk.submit("small")
    assert desk.cancel("big") == ["admit small"]


def test_a_resident() -> None:
    desk = Desk(seats=1)
    desk.submit("a")
    desk.submit("b")
    assert desk.cancel("a") == ["cancel a"]
    assert desk.row("a").cancelling
    assert desk.state("b") == "queued"  # the seat is free when the engine says so
    assert_gone(desk, "a")
    assert desk.state("b") == "resident"


def test_one_being_parked() -> None:
    desk = Desk(seats=1)
    desk.submit("low")
    desk.progress()
    assert desk.submit("high", priority=1) == ["park low"]
    assert desk.cancel("low") == ["cancel low"]
    assert_gone(desk, "low")
    assert desk.state("high") == "resident"


def test_one_that_is_parked_after_its_cancel_is_never_restored() -> None:
    desk = Desk(seats=1)
    desk.submit("low")
    desk.progress()
    desk.submit("high", priority=1)
    desk.cancel("low")
    assert desk.parked("low") == ["admit high"]
    assert desk.finished("high") == []
    assert_gone(desk, "low")


def test_one_whose_park_fails_after_its_cancel_is_no_victim_any_more() -> None:
    desk = Desk(seats=2)
    desk.submit("a")
    desk.submit("b")
    desk.progress()
    assert desk.submit("high", priority=1) == ["park b"]
    desk.cancel("b")
    assert desk.park_failed("b") == []  # it leaves anyway: no other is parked for the newcomer
    assert_gone(desk, "b")
    assert desk.state("high") == "resident"


def test_a_parked_one_is_cancelled_by_its_engine_and_no_longer_in_the_line() -> None:
    desk = parked_desk()
    assert desk.cancel("low") == ["cancel low"]
    assert desk.submit("fresh") == []
    assert desk.finished("high") == ["admit fresh"]
    assert_gone(desk, "low")


def test_one_being_restored() -> None:
    desk = parked_desk()
    assert desk.finished("high") == ["restore low"]
    assert desk.cancel("low") == ["cancel low"]
    assert desk.restored("low") == []
    assert_gone(desk, "low")


def test_a_restore_deferred_after_the_cancel_is_not_tried_again() -> None:
    desk = parked_desk()
    assert desk.finished("high") == ["restore low"]
    desk.cancel("low")
    desk.sides["g1"].parked["low"] = (16, 1)
    assert desk.deferred("low") == []
    assert desk.wait(10.0) == []
    assert_gone(desk, "low")


def test_an_admission_deferred_after_the_cancel_ends_the_request() -> None:
    desk = Desk()
    desk.submit("a")
    assert desk.cancel("a") == ["cancel a"]
    assert desk.deferred("a") == []
    assert desk.live() == set()


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR])
def test_a_request_that_ends_by_itself_before_its_cancel_arrives_is_gone(reason: FinishReason) -> None:
    desk = Desk()
    desk.submit("a")
    desk.cancel("a")
    desk.finished("a", reason)
    assert desk.live() == set()


def test_an_unknown_or_ended_request_is_a_no_op() -> None:
    """Case E4."""
    desk = Desk()
    assert desk.cancel("ghost") == []
    desk.submit("a")
    desk.finished("a")
    assert desk.cancel("a") == []


def test_the_survivor_s_cancel_frees_the_mark_when_it_has_ended() -> None:
    desk = Desk()
    for request_id in ("a", "b", "c"):
        desk.submit(request_id)
    desk.progress()
    assert desk.pressure(1) == ["park c"]
    assert desk.group().survivor_id == "a"
    desk.cancel("a")
    desk.finished("a", FinishReason.CANCELLED)
    assert desk.group().survivor_id is None
