"""A request of a higher priority does not wait behind running ones of a lower priority (case 1)."""

import pytest

from scheduler.admission import WrongState
from scheduler.messages import FinishReason
from tests.scheduler.admission.desk import PAGE, Desk


def running(desk: Desk, tokens: dict[str, int], **priority: int) -> Desk:
    for request_id in tokens:
        assert desk.submit(request_id, priority=priority.get(request_id, 0)) == [f"admit {request_id}"]
    desk.grow(tokens)
    return desk


def test_when_seats_are_the_limit_the_lowest_tier_makes_room() -> None:
    desk = running(Desk(seats=2), {"low": 100, "middle": 50}, middle=1)
    assert desk.submit("high", priority=2) == ["park low"]
    assert desk.state("high") == "queued"
    assert desk.parked("low") == ["admit high"]
    assert desk.row("low").parks == 1


def test_equals_never_displace_each_other() -> None:
    desk = running(Desk(seats=2), {"a": 100, "b": 50})
    assert desk.submit("c") == []
    desk = running(Desk(pages=20), {"a": 100, "b": 50})
    assert desk.submit("c", 8 * PAGE) == []


def test_the_victim_rule_holds_within_the_tier() -> None:
    desk = running(Desk(seats=3), {"old": 50, "long": 300, "new": 60})
    assert desk.submit("high", priority=1) == ["park new"]


def test_when_pages_are_the_limit_as_many_go_as_are_needed_and_no_more() -> None:
    desk = running(Desk(pages=40), {"a": 10 * PAGE, "b": 5 * PAGE, "c": 5 * PAGE})
    # Taken 20, wanted by all 9; the newcomer wants 15 + 3: seven too many, of which c gives back 5 + 3.
    assert desk.submit("high", 15 * PAGE, priority=1) == ["park c"]
    assert desk.parked("c") == ["admit high"]


def test_nobody_is_displaced_in_vain() -> None:
    desk = running(Desk(pages=40), {"equal": 20 * PAGE, "low": 5 * PAGE}, equal=1)
    assert desk.submit("high", 30 * PAGE, priority=1) == []


def test_the_survivor_is_not_displaced_while_pages_are_short() -> None:
    desk = running(Desk(seats=2), {"first": 100, "second": 50})
    assert desk.pressure(1) == ["park second"]
    desk.park_failed("second")
    assert desk.group().survivor_id == "first"
    assert desk.submit("high", priority=9) == []  # and the other's park has failed just now
    desk.now += 1.0
    assert desk.progress() == ["park second"]


def test_who_survived_a_shortage_is_displaced_like_any_other_when_it_is_over() -> None:
    desk = running(Desk(seats=2), {"first": 100, "second": 50})
    assert desk.pressure(1) == ["park second"]
    assert desk.parked("second") == []
    assert desk.submit("high", priority=9) == ["admit high"]
    assert desk.submit("higher", priority=9) == ["park first"]


def test_the_only_resident_may_go_for_the_newcomer_runs_in_its_place() -> None:
    desk = running(Desk(seats=1), {"low": 100})
    assert desk.submit("high", priority=1) == ["park low"]
    assert desk.parked("low") == ["admit high"]
    assert desk.finished("high") == ["restore low"]


def test_one_victim_is_parked_for_one_newcomer_however_many_events_pass() -> None:
    desk = running(Desk(seats=3), {"a": 100, "b": 50, "c": 50})
    desk.is_deaf = True
    assert desk.submit("high", priority=1) == ["park c"]
    assert desk.progress() == []
    assert desk.wait(1.0) == []
    assert desk.submit("second", priority=1) == []  # the queue is served one by one


def test_while_room_is_made_nobody_else_takes_it() -> None:
    desk = running(Desk(seats=2), {"a": 100, "b": 50})
    assert desk.submit("high", priority=1) == ["park b"]
    assert desk.submit("low") == []
    assert desk.parked("b") == ["admit high"]
    assert desk.state("low") == "queued"


def test_a_still_higher_newcomer_takes_the_room_that_is_being_made() -> None:
    desk = running(Desk(seats=2), {"a": 100, "b": 50})
    assert desk.submit("high", priority=1) == ["park b"]
    assert desk.submit("highest", priority=2) == []
    assert desk.parked("b") == ["admit highest", "park a"]


def test_when_the_park_fails_another_makes_room() -> None:
    desk = running(Desk(seats=3), {"a": 100, "b": 50, "c": 50})
    assert desk.submit("high", priority=1) == ["park c"]
    assert desk.park_failed("c") == ["park b"]
    assert desk.parked("b") == ["admit high"]


def test_when_no_park_is_possible_it_waits_like_anybody() -> None:
    desk = running(Desk(seats=2, arena=0, recompute=False), {"a": 100, "b": 50})
    assert desk.submit("high", priority=1) == []
    assert desk.finished("a") == ["admit high"]


def test_the_displaced_one_comes_back_when_the_newcomer_is_cancelled_meanwhile() -> None:
    desk = running(Desk(seats=1), {"low": 100})
    desk.submit("high", priority=1)
    assert desk.cancel("high") == []
    assert desk.parked("low") == ["restore low"]


def test_a_parked_request_displaces_residents_of_a_lower_priority_too() -> None:
    desk = running(Desk(seats=2), {"low": 100, "vip": 50}, vip=5)
    assert desk.submit("x", priority=6) == ["park low"]
    desk.parked("low")
    desk.progress()
    assert desk.submit("y", priority=6) == ["park vip"]
    assert desk.parked("vip") == ["admit y"]
    assert desk.finished("x") == ["restore vip"]
    assert desk.finished("y") == ["restore low"]
    desk.restored("vip"), desk.restored("low")
    assert desk.submit("z", priority=6) == ["park low"]
    assert desk.parked("low") == ["admit z"]


def test_a_park_that_would_lift_it_to_the_newcomer_s_tier_protects_it_already() -> None:
    """It would come back before the one for whom it was parked: copied out and in for nothing."""
    desk = running(Desk(seats=1), {"often": 100})
    for turn in range(2):
        assert desk.submit(f"high {turn}", priority=1) == ["park often"]
        desk.parked("often")
        assert desk.finished(f"high {turn}") == ["restore often"]
        desk.restored("often")
    assert desk.submit("high again", priority=1) == []
    assert desk.submit("higher", priority=2) == ["park often"]
    assert desk.parked("often") == ["admit higher"]
    assert desk.row("often").effective_priority == 1
    assert desk.finished("higher") == ["restore often"]  # before "high again", which is of its tier


def test_promotion_by_parks_gives_no_right_to_displace() -> None:
    """Otherwise two requests of one priority could displace each other for ever."""
    desk = running(Desk(seats=1), {"often": 100})
    for turn in range(3):
        assert desk.submit(f"highest {turn}", priority=9) == ["park often"]
        desk.parked("often")
        if turn < 2:
            assert desk.finished(f"highest {turn}") == ["restore often"]
            desk.restored("often")
    desk.submit("plain")
    assert desk.row("often").effective_priority == 1
    assert desk.finished("highest 2") == ["restore often"]
    assert desk.finished("often") == ["admit plain"]


def test_what_came_in_by_age_is_not_displaced_by_those_it_outranked() -> None:
    """It would be sent out again at once, having waited for nothing."""
    desk = running(Desk(seats=1), {"running": 50}, running=3)
    desk.submit("old")
    desk.now = 60.0  # two steps: three tiers
    desk.submit("young", priority=2)
    assert desk.finished("running", FinishReason.LENGTH) == ["admit old"]
    assert desk.progress() == []
    assert desk.submit("tier of its age", priority=3) == []
    assert desk.submit("above it", priority=4) == ["park old"]


def test_a_blocked_head_of_the_queue_is_passed_by_parked_work_eight_times_at_most() -> None:
    small = [f"small {n}" for n in range(10)]
    desk = Desk(pages=100, seats=20)
    running(desk, {"best": PAGE} | dict.fromkeys(small, PAGE), best=9)
    side = desk.sides["g1"]
    for request_id in small:
        others = sum(side.pages(other) for other in side.residents if other not in ("best", request_id))
        side.residents["best"] = (100 - others) * PAGE
        assert desk.parked(request_id) == []
    assert desk.submit("big", 60 * PAGE, priority=8) == []
    # Each small one that comes back could be displaced again by the big one, if that helped: the best one is too long.
    restored = desk.grow({"best": 40 * PAGE})
    assert restored == [f"restore {request_id}" for request_id in small[:8]]
    assert desk.row("big").passes == 8
    assert desk.progress() == []


def test_where_parking_is_off_nobody_is_held_nor_displaced() -> None:
    desk = Desk(seats=1, park=False)
    desk.submit("a")
    desk.progress()
    assert desk.submit("b", priority=5) == []
    for request_id, state in (("a", "resident"), ("b", "queued")):
        with pytest.raises(WrongState) as refused:
            desk.park(request_id)
        assert (refused.value.state, refused.value.why) == (state, "parking is off")
    assert desk.unpark("a") == []
