"""An explicit park: out of every line, no seat, no pages, until unpark, the deadline or the end."""

import pytest

from scheduler.admission import AdmissionPolicy, UnknownRequest, WrongState
from scheduler.messages import FinishReason, ParkReason
from tests.scheduler.admission.desk import PAGE, Desk, held_desk, two_residents

# ---- queued


def test_a_queued_one_leaves_the_line_and_comes_back_to_the_place_of_its_arrival() -> None:
    desk = Desk(seats=1)
    for request_id in ("running", "first", "second", "third"):
        desk.submit(request_id)
    assert desk.park("first") == []
    assert (desk.row("first").state, desk.row("first").held, desk.row("first").group_id) == ("queued", True, None)
    assert desk.finished("running") == ["admit second"]
    assert desk.unpark("first") == []
    assert not desk.row("first").held
    assert desk.finished("second") == ["admit first"]
    assert desk.finished("first") == ["admit third"]


def test_holding_a_blocked_head_lets_the_next_one_in() -> None:
    desk = Desk(pages=20)
    desk.submit("a", 160)
    desk.submit("big", 240)
    desk.submit("small")
    assert desk.park("big") == ["admit small"]


def test_an_unparked_one_may_enter_at_once() -> None:
    desk = Desk(seats=1)
    desk.submit("running")
    desk.submit("a")
    desk.park("a")
    assert desk.finished("running") == []
    assert desk.unpark("a") == ["admit a"]


def test_the_held_are_in_no_queue_and_a_bound_of_their_own_holds() -> None:
    """Or whoever may park could queue without bound."""
    desk = Desk(seats=1, policy=AdmissionPolicy(max_queued_requests=2))
    for request_id in ("running", "a", "b"):
        desk.submit(request_id)
    desk.park("a")
    desk.park("b")
    assert desk.core.status(0.0).queued_requests == 0
    desk.submit("c")
    with pytest.raises(WrongState) as refused:
        desk.park("c")
    assert refused.value.why == "2 requests are held, and at most 2 may be"
    assert not desk.row("c").held
    assert desk.park("a", 5.0) == []  # new terms for one that is held already


def test_prompts_of_the_held_are_bounded_like_those_of_the_queue() -> None:
    desk = Desk(seats=1, policy=AdmissionPolicy(max_queued_tokens=100))
    desk.submit("running")
    desk.submit("a", 60)
    desk.park("a")
    desk.submit("b", 60)
    with pytest.raises(WrongState, match="prompts of 60 tokens are held, and at most 100 may be"):
        desk.park("b")
    desk.unpark("a")
    assert desk.park("b") == []


# ---- resident


def test_a_resident_is_ordered_out_and_stays_out_though_there_is_room() -> None:
    desk = two_residents()
    assert desk.park("a") == ["park a"]
    assert desk.reasons["a"] is ParkReason.EXPLICIT
    assert (desk.row("a").state, desk.row("a").held) == ("parking", True)
    assert desk.parked("a") == []
    assert (desk.row("a").state, desk.row("a").held, desk.row("a").pages) == ("parked", True, 0)
    assert desk.finished("b") == []
    assert desk.wait(1000.0) == []
    assert desk.unpark("a") == ["restore a"]
    assert desk.restored("a") == []
    assert desk.state("a") == "resident"


def test_its_seat_and_pages_serve_others_meanwhile() -> None:
    desk = two_residents()
    assert desk.submit("waiting") == []
    assert desk.park("a") == ["park a"]
    assert desk.parked("a") == ["admit waiting"]
    assert desk.unpark("a") == []
    assert desk.finished("b") == ["restore a"]


def test_the_last_resident_and_the_survivor_may_be_held() -> None:
    desk = two_residents()
    assert desk.pressure(1) == ["park b"]
    assert desk.group().survivor_id == "a"
    assert desk.park("a") == ["park a"]
    assert desk.group().survivor_id is None
    assert desk.parked("a") == []
    assert desk.parked("b") == ["restore b"]


def test_one_the_engine_has_not_let_in_yet_is_held_when_it_is_deferred() -> None:
    desk = Desk()
    desk.is_deaf = True
    desk.submit("a")
    assert desk.park("a") == ["park a"]
    desk.sides["g1"].residents["a"] = PAGE  # for the desk, which will take it out
    assert desk.deferred("a") == []
    assert (desk.row("a").state, desk.row("a").held) == ("queued", True)
    assert desk.wait(1.0) == []
    assert desk.unpark("a") == ["admit a"]


def test_a_park_that_fails_leaves_it_running_unheld_and_tells_why() -> None:
    desk = two_residents()
    desk.park("a", 10.0)
    assert desk.core.hold_failure("a") is None
    assert desk.park_failed("a") == []
    row = desk.row("a")
    assert (row.state, row.held, row.hold_left_s, row.then) == ("resident", False, None, None)
    assert desk.core.hold_failure("a") == "no arena room"
    assert desk.core.next_deadline is None
    assert desk.park("a") == ["park a"]
    assert desk.core.hold_failure("a") is None


# ---- being parked, parked, being restored


def test_one_being_parked_under_pressure_needs_no_second_order_to_be_held() -> None:
    desk = two_residents()
    assert desk.pressure(1) == ["park b"]
    assert desk.park("b") == []
    assert desk.parked("b") == []
    assert desk.finished("a") == []
    assert desk.unpark("b") == ["restore b"]


def test_an_unpark_while_it_is_being_parked_lets_it_come_back_when_it_has_landed() -> None:
    desk = two_residents()
    desk.park("a")
    assert desk.unpark("a") == []
    assert desk.state("a") == "parking"
    assert desk.parked("a") == ["restore a"]


def test_one_that_is_parked_leaves_the_line_of_those_who_come_back() -> None:
    desk = two_residents()
    desk.pressure(1)
    desk.grow({"a": 60 * PAGE})
    desk.parked("b")
    assert desk.park("b") == []
    assert desk.submit("fresh") == []
    assert desk.finished("a") == ["admit fresh"]  # not kept out by one of its tier that is held
    assert desk.unpark("b") == ["restore b"]


def test_one_on_its_way_back_is_ordered_out_again() -> None:
    desk = held_desk()
    assert desk.unpark("a") == ["restore a"]
    assert desk.park("a") == ["park a"]
    assert desk.restored("a") == []
    assert (desk.row("a").state, desk.row("a").held) == ("parking", True)
    assert desk.group().seats_free == 0


def test_one_whose_restore_found_no_room_before_its_park_stays_parked_and_counts_one_park() -> None:
    """The engine answers the Park of one that is parked already; until then nothing new is ordered for it."""
    desk = held_desk()
    desk.unpark("a")
    desk.park("a")
    side = desk.sides["g1"]
    side.parked["a"] = (side.residents["a"], 7)
    assert desk.deferred("a") == []
    assert desk.unpark("a") == []
    assert desk.state("a") == "parking"
    side.residents["a"] = side.parked.pop("a")[0]
    assert desk.parked("a") == ["restore a"]
    assert desk.row("a").parks == 1


def test_an_answer_that_a_restore_has_overtaken_is_left_aside() -> None:
    """An engine in need parks by itself; if a Park of ours was under way, it is answered once more."""
    desk = two_residents()
    assert desk.parked("a") == ["restore a"]
    side = desk.sides["g1"]
    side.parked["a"] = (side.residents["a"], 7)
    assert desk.parked("a") == []
    assert (desk.state("a"), desk.row("a").parks) == ("restoring", 1)
    desk.restored("a")
    assert desk.state("a") == "resident"


# ---- no gain by it


def test_explicit_parks_do_not_promote() -> None:
    desk = two_residents()
    for _ in range(3):
        assert desk.park("a") == ["park a"]
        desk.parked("a")
        assert desk.unpark("a") == ["restore a"]
        desk.restored("a")
    assert (desk.row("a").parks, desk.row("a").effective_priority) == (3, 0)


def test_time_held_does_not_age_and_counts_as_parked() -> None:
    desk = Desk(seats=1)
    desk.submit("a")
    desk.now = 1.0
    desk.submit("b")
    desk.now = 5.0
    desk.park("b")
    desk.now = 500.0
    assert desk.row("b").waited_s == 4.0
    desk.unpark("b")
    desk.now = 507.0
    assert desk.row("b").waited_s == 11.0
    desk.progress()
    desk.park("a")
    desk.now = 510.0
    assert desk.parked("a") == ["admit b"]
    desk.now = 610.0
    row = desk.row("a")
    assert (row.waited_s, row.parked_s, row.age_s) == (0.0, 100.0, 610.0)


def test_an_older_arrival_that_was_held_is_not_put_before_one_whose_age_has_lifted_it() -> None:
    desk = Desk(seats=1)
    for request_id in ("running", "held", "waiting"):
        desk.submit(request_id)
    desk.park("held")
    desk.now = 95.0
    desk.unpark("held")
    assert desk.finished("running") == ["admit waiting"]
    assert desk.finished("waiting") == ["admit held"]


# ---- the end, and what cannot be


def test_a_held_one_is_cancelled_like_any_other() -> None:
    desk = held_desk()
    assert desk.cancel("a") == ["cancel a"]
    assert desk.cancel("a") == []
    desk.finished("a", FinishReason.CANCELLED)
    assert desk.live() == {"b"}
    desk.submit("c")
    desk.submit("d")
    desk.park("d")
    assert desk.cancel("d") == []
    assert desk.live() == {"b", "c"}


def test_held_ones_of_a_lost_group_are_lost_with_it_and_those_that_never_ran_are_not() -> None:
    desk = held_desk()
    desk.submit("c")
    desk.submit("d")
    desk.park("d", 5.0)
    assert desk.core.remove_group("g1", desk.now) == ["a", "b", "c"]
    desk.core.check_integrity()
    desk.add_group("g1")
    assert desk.wait(5.0) == ["admit d"]


def test_orders_are_idempotent() -> None:
    desk = two_residents()
    assert desk.unpark("a") == []
    assert desk.park("a") == ["park a"]
    assert desk.park("a") == []
    desk.parked("a")
    assert desk.park("a") == []
    assert desk.unpark("a") == ["restore a"]
    assert desk.unpark("a") == []


def test_an_unknown_request_and_one_that_is_ending_are_refused() -> None:
    desk = two_residents()
    for order in (desk.park, desk.unpark, lambda request_id: desk.set_priority(request_id, 1)):
        with pytest.raises(UnknownRequest, match="no live request has the id ghost"):
            order("ghost")
    desk.cancel("a")
    for order in (desk.park, desk.unpark, lambda request_id: desk.set_priority(request_id, 1)):
        with pytest.raises(WrongState) as refused:
            order("a")
        assert (refused.value.state, refused.value.why) == ("ending", "it has been cancelled")
