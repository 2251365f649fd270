"""Several groups, and each one's ledger: what is free once everything promised is counted."""

from typing import Any

from scheduler.messages import (
    Deferred,
    Finished,
    FinishReason,
    ParkFailed,
    ParkMode,
    ParkReason,
    Pressure,
    Progress,
    Restored,
)
from tests.engine_events import parked
from tests.scheduler.admission.desk import PAGE, Desk

TWO = ("g1", "g2")
THREE_PAGES: dict[str, Any] = {"num_tokens": 48, "pages_to_hold": 3, "num_pages": 3, "reason": ParkReason.SEAT}


def test_a_fresh_request_goes_to_the_group_with_the_most_free_pages() -> None:
    desk = Desk(groups=TWO)
    assert desk.submit("a", 10 * PAGE) == ["admit a g1"]  # both are empty: the first by name
    assert desk.submit("b", 5 * PAGE) == ["admit b g2"]
    assert desk.submit("c", 10 * PAGE) == ["admit c g2"]
    assert desk.submit("d") == ["admit d g1"]


def test_of_equal_pages_the_group_with_more_free_seats_is_taken() -> None:
    desk = Desk(groups=())
    desk.add_group("g1", seats=4)
    desk.add_group("g2", seats=8)
    assert desk.submit("a") == ["admit a g2"]


def test_a_group_without_a_free_seat_is_passed_over_though_it_has_more_pages() -> None:
    desk = Desk(groups=())
    desk.add_group("g1", seats=1, pages=500)
    desk.add_group("g2", seats=8, pages=50)
    assert desk.submit("a") == ["admit a g1"]
    assert desk.submit("b") == ["admit b g2"]


def test_a_parked_request_returns_to_its_own_group() -> None:
    desk = Desk(groups=TWO, seats=1)
    desk.submit("a")
    desk.submit("b", priority=5)
    desk.progress("g1"), desk.progress("g2")
    assert desk.submit("high", priority=3) == ["park a g1"]
    assert desk.parked("a") == ["admit high g1"]
    assert desk.finished("b") == []  # g2 is empty, but what a has computed lies in g1's arena
    assert desk.finished("high") == ["restore a g1"]


def test_parked_work_of_one_group_does_not_keep_fresh_work_out_of_another() -> None:
    desk = Desk(groups=TWO, seats=1)
    desk.submit("a")
    desk.progress("g1")
    desk.submit("b", priority=5)
    desk.progress("g2")
    desk.submit("high", priority=3)
    desk.parked("a")
    desk.submit("fresh")
    assert desk.finished("b") == ["admit fresh g2"]


def test_displacement_takes_place_where_the_lowest_tier_runs() -> None:
    desk = Desk(groups=TWO, seats=1)
    desk.submit("a", priority=2)
    desk.submit("b", priority=1)
    desk.progress("g1"), desk.progress("g2")
    assert desk.submit("high", priority=3) == ["park b g2"]
    assert desk.wait(1.0) == []
    assert desk.parked("b") == ["admit high g2"]


def test_each_group_s_commands_are_numbered_from_one_without_a_gap() -> None:
    desk = Desk(groups=TWO, seats=4)  # the desk itself asserts each number
    for n in range(8):
        desk.submit(f"r{n}")
    for n in range(8):
        desk.cancel(f"r{n}")
    assert [desk.group(group_id).commands_given for group_id in TWO] == [8, 8]


# ---- the ledger


def test_an_order_the_engine_has_not_carried_out_holds_its_pages() -> None:
    desk = Desk(pages=30)
    desk.is_deaf = True
    assert desk.submit("a", 12 * PAGE) == ["admit a"]  # 12 and 3 wanted: 15
    assert desk.submit("b", 12 * PAGE) == ["admit b"]  # 30 in all
    assert desk.submit("c", PAGE) == []
    assert desk.group().pages_free == 30
    assert desk.group().pages_unclaimed == 6


def test_a_resident_that_still_prefills_holds_the_pages_of_its_whole_prompt() -> None:
    """Trap 16: a chunk that will be computed is reserved as a whole."""
    desk = Desk(pages=30)
    desk.submit("a", 20 * PAGE)
    desk.sides["g1"].held["a"] = 2
    desk.progress()
    assert desk.group().pages_free == 28
    assert desk.group().pages_unclaimed == 10
    assert desk.submit("b", 5 * PAGE) == []  # 5 + 3 + 3 of 10
    assert desk.submit("c", 4 * PAGE) == []  # and nobody passes it
    desk.cancel("b")
    assert desk.state("c") == "resident"  # 4 + 3 + 3 of 10


def test_what_is_parked_is_counted_and_what_is_free_is_the_engine_s_word() -> None:
    """Trap 1: counting only what runs, a pool full of other things looked empty."""
    desk = Desk(pages=30)
    desk.submit("a", PAGE)
    desk.sides["g1"].residents["idle residue"] = 24 * PAGE
    desk.progress()
    assert desk.submit("b", PAGE) == []
    del desk.sides["g1"].residents["idle residue"]
    assert desk.progress() == ["admit b"]


def test_pages_are_counted_not_tokens() -> None:
    """Trap 7: one token more than a page's border costs a page."""
    desk = Desk(pages=23)
    desk.submit("a", 10 * PAGE)
    assert desk.submit("b", 7 * PAGE + 1) == []
    desk = Desk(pages=23)
    desk.submit("a", 10 * PAGE)
    assert desk.submit("b", 7 * PAGE) == ["admit b"]


def test_pages_of_a_request_being_parked_are_not_promised_to_anyone_before_it_has_landed() -> None:
    desk = Desk(pages=40, seats=8)
    desk.submit("best", 16 * PAGE, priority=9)
    desk.submit("low", 16 * PAGE)
    desk.progress()
    assert desk.submit("high", 12 * PAGE, priority=1) == ["park low"]
    assert desk.group().pages_unclaimed == 8
    assert desk.parked("low") == ["admit high"]


def test_an_account_older_than_the_last_one_is_left_aside() -> None:
    desk = Desk(pages=30)
    old = desk.sides["g1"].load()
    desk.submit("a", 10 * PAGE)
    desk.progress()
    desk.say(Progress(load=old))
    assert desk.group().pages_free == 20


def test_one_account_may_come_with_several_events_and_run_ahead_of_them() -> None:
    """The engine gives all events of a batch the newest account."""
    desk = Desk(pages=100, seats=2)
    desk.submit("a")
    desk.submit("b")
    side = desk.sides["g1"]
    del side.residents["a"], side.residents["b"]
    load = side.load()
    assert desk.say(Finished(load=load, request_id="a", num_tokens=1, reason=FinishReason.STOP)) == []
    assert desk.state("b") == "resident"
    assert desk.group().pages_unclaimed == 100
    assert desk.say(Finished(load=load, request_id="b", num_tokens=1, reason=FinishReason.STOP)) == []
    assert desk.live() == set()


# ---- what is not known (any more)


def test_events_for_unknown_requests_and_groups_are_ignored() -> None:
    """Case C3: a late completion for a dead id must not trip anything."""
    desk = Desk()
    load = desk.sides["g1"].load()
    stranger = Desk(groups=("elsewhere",)).sides["elsewhere"].load()
    for each in (load, stranger):
        assert desk.say(parked(each, request_id="ghost", **THREE_PAGES)) == []
        assert desk.say(ParkFailed(load=each, request_id="ghost", reason="x")) == []
        assert desk.say(Restored(load=each, request_id="ghost", mode=ParkMode.COPY)) == []
        assert desk.say(Deferred(load=each, request_id="ghost")) == []
        assert desk.say(Finished(load=each, request_id="ghost", num_tokens=1, reason=FinishReason.STOP)) == []
        assert desk.say(Pressure(load=each, shortfall=3)) == []
    assert desk.live() == set()


def test_an_event_of_one_group_about_a_request_of_another_is_ignored() -> None:
    desk = Desk(groups=TWO)
    desk.submit("a")
    assert (
        desk.say(Finished(load=desk.sides["g2"].load(), request_id="a", num_tokens=1, reason=FinishReason.STOP)) == []
    )
    assert desk.state("a") == "resident"


def test_a_park_reported_twice_counts_once() -> None:
    desk = Desk(seats=1)
    desk.submit("a")
    desk.progress()
    desk.submit("high", priority=1)
    desk.parked("a")
    desk.say(parked(desk.sides["g1"].load(), request_id="a", **THREE_PAGES))
    assert desk.row("a").parks == 1


# ---- a lost engine


def test_a_lost_group_returns_what_was_on_it_in_order_of_arrival() -> None:
    desk = Desk(groups=TWO, seats=1)
    desk.submit("a")
    desk.submit("b", priority=5)
    desk.progress("g1"), desk.progress("g2")
    desk.submit("high", priority=3)
    desk.parked("a")
    desk.submit("waiting")
    assert desk.core.remove_group("g1", desk.now) == ["a", "high"]
    desk.core.check_integrity()
    assert desk.live() == {"b", "waiting"}
    assert desk.finished("b") == ["admit waiting g2"]


def test_queued_requests_that_only_the_lost_group_could_hold_are_lost_too() -> None:
    desk = Desk(groups=())
    desk.add_group("large", pages=100, seats=1)
    desk.add_group("small", pages=4, seats=1)
    desk.submit("a", priority=9)
    desk.submit("b", priority=9)
    desk.submit("big", 50 * PAGE)
    desk.submit("little")
    assert desk.core.remove_group("large", desk.now) == ["a", "big"]
    desk.core.check_integrity()
    assert desk.live() == {"b", "little"}


def test_a_group_that_comes_back_is_a_new_one_and_serves_what_has_waited() -> None:
    desk = Desk(seats=1)
    desk.submit("a")
    desk.submit("waiting")
    late = Finished(load=desk.sides["g1"].load(), request_id="a", num_tokens=1, reason=FinishReason.STOP)
    assert desk.core.remove_group("g1", desk.now) == ["a"]
    assert desk.say(late) == []
    desk.add_group("g1", seats=1)
    assert desk.wait(1.0) == ["admit waiting"]
    assert desk.group().commands_given == 1


def test_removing_an_unknown_group_is_a_no_op() -> None:
    assert Desk().core.remove_group("elsewhere", 0.0) == []
