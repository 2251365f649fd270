"""Where pages may be dropped and computed again, a full arena stops nobody; where not, the door says so."""

import pytest

from scheduler.admission import AdmissionPolicy, CapacityExhausted
from scheduler.messages import ParkMode
from tests.scheduler.admission.desk import PAGE, Desk


def crowd(*, arena: int, recompute: bool, policy: AdmissionPolicy | None = None) -> Desk:
    desk = Desk(pages=200, arena=arena, recompute=recompute, policy=policy)
    for request_id in ("long", "old", "new"):
        desk.submit(request_id, max_tokens=9000)
    desk.grow({"long": 900, "old": 160, "new": 160})
    return desk


def test_the_victims_of_the_policy_go_though_the_arena_is_too_small() -> None:
    assert crowd(arena=0, recompute=True).pressure(12) == ["park new", "park old"]
    assert crowd(arena=3, recompute=True).pressure(1) == ["park new"]


def test_a_higher_priority_displaces_without_an_arena() -> None:
    desk = Desk(seats=1, arena=0)
    desk.submit("low")
    desk.progress()
    assert desk.submit("high", priority=1) == ["park low"]
    assert desk.parked("low", copied=False) == ["admit high"]
    assert desk.finished("high") == ["restore low"]
    assert desk.restored("low", ParkMode.RECOMPUTE) == []
    row = desk.row("low")
    assert (row.state, row.parks, row.recomputes) == ("resident", 1, 1)


def test_what_was_dropped_needs_the_pages_of_its_tokens_to_come_back() -> None:
    desk = crowd(arena=0, recompute=True)
    desk.sides["g1"].residents["long"] = 180 * PAGE
    assert desk.parked("new", copied=False) == []
    # 10 for its tokens and 3 wanted; the long one wants 3 and the old one holds 10 and wants 3.
    assert desk.grow({"long": 171 * PAGE + 1}) == []
    assert desk.grow({"long": 171 * PAGE}) == ["restore new"]


def test_a_copy_that_can_t_come_back_counts_as_a_recompute() -> None:
    desk = crowd(arena=1000, recompute=True)
    assert desk.parked("new") == ["restore new"]
    desk.restored("new", ParkMode.RECOMPUTE)
    assert (desk.row("new").parks, desk.row("new").recomputes, desk.row("new").arena_pages) == (1, 1, 0)


def test_where_it_computes_again_its_pages_are_not_promised_to_anyone() -> None:
    """Trap 14: a sequence with an emptied pool share looked small."""
    desk = Desk(pages=100, arena=0)
    desk.submit("a")
    desk.submit("b")
    desk.grow({"a": 20 * PAGE, "b": 20 * PAGE})
    assert desk.parked("b", copied=False) == ["restore b"]
    desk.sides["g1"].held["b"] = 0
    desk.restored("b", ParkMode.RECOMPUTE)
    assert desk.group().pages_free == 80
    assert desk.group().pages_unclaimed == 60


# ---- neither arena nor recompute


def test_while_nobody_can_be_parked_new_requests_are_pushed_back() -> None:
    desk = crowd(arena=0, recompute=False)
    assert desk.pressure(3) == []
    assert desk.group().exhausted
    assert desk.core.status(0.0).exhausted
    with pytest.raises(CapacityExhausted) as refused:
        desk.submit("fresh")
    assert refused.value.retry_after_s == 10  # three entered within the last 30 s
    with pytest.raises(CapacityExhausted):
        desk.core.check_room(desk.now)
    assert desk.live() == {"long", "old", "new"}


def test_the_queue_ahead_counts_in_the_time_to_come_back() -> None:
    desk = crowd(arena=0, recompute=False)
    desk.sides["g1"].residents["long"] = 180 * PAGE
    desk.progress()
    assert desk.submit("waiting") == []
    desk.pressure(3)
    with pytest.raises(CapacityExhausted) as refused:
        desk.core.check_room(desk.now)
    assert refused.value.retry_after_s == 20


def test_it_is_over_when_something_ends() -> None:
    desk = crowd(arena=0, recompute=False)
    desk.pressure(3)
    desk.finished("new")
    assert not desk.core.status(0.0).exhausted
    assert desk.submit("fresh") == ["admit fresh"]


def test_it_is_over_when_pages_have_come_free() -> None:
    desk = crowd(arena=0, recompute=False)
    desk.pressure(3)
    desk.grow({"long": 800})
    assert not desk.group().exhausted
    assert desk.submit("fresh") == ["admit fresh"]


def test_a_failed_copy_that_leaves_nobody_to_park_exhausts_too() -> None:
    desk = Desk(pages=200, recompute=False)
    desk.submit("long")
    desk.submit("new")
    desk.grow({"long": 900, "new": 160})
    assert desk.pressure(3) == ["park new"]
    assert not desk.group().exhausted
    assert desk.park_failed("new") == []
    assert desk.group().exhausted


def test_while_someone_is_on_the_way_out_or_in_nothing_is_exhausted() -> None:
    desk = crowd(arena=10, recompute=False)
    desk.is_deaf = True
    assert desk.pressure(30) == ["park new"]
    assert desk.pressure(30) == []
    assert not desk.group().exhausted


def test_one_group_with_room_keeps_the_door_open() -> None:
    desk = Desk(groups=("g1", "g2"), pages=200, arena=0, recompute=False)
    for request_id in ("a", "b", "c", "d"):
        desk.submit(request_id)
    desk.progress("g1"), desk.progress("g2")
    desk.pressure(3, "g1")
    assert [desk.group(group_id).exhausted for group_id in ("g1", "g2")] == [True, False]
    assert desk.submit("e") == ["admit e g2"]
    desk.pressure(3, "g2")
    with pytest.raises(CapacityExhausted):
        desk.submit("f")
