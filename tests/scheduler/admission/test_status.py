"""The snapshot for /health and the demo, and the proof of the books."""

import json
from dataclasses import asdict

import pytest

from scheduler.admission import AdmissionCorrupt, HoldEnd, RequestRow
from tests.scheduler.admission.desk import Desk


def busy_desk() -> Desk:
    desk = Desk(seats=2, pages=100, arena=50)
    desk.submit("low", 32)
    desk.submit("vip", 48, priority=5)
    desk.progress()
    desk.now = 2.0
    desk.submit("high", 64, priority=1)
    desk.now = 3.0
    desk.parked("low")
    desk.submit("waiting", 10, priority=-1)
    desk.progress()
    desk.now = 5.0
    return desk


def test_every_live_request_has_a_row_in_order_of_arrival() -> None:
    rows = busy_desk().core.status(5.0).requests
    table = [
        (row.request_id, row.slot, row.state, row.group_id, row.tokens, row.pages, row.arena_pages, row.parks)
        for row in rows
    ]
    assert table == [
        ("low", 0, "parked", "g1", 32, 0, 2, 1),
        ("vip", 1, "resident", "g1", 48, 3, 0, 0),
        ("high", 2, "resident", "g1", 64, 4, 0, 0),
        ("waiting", 3, "queued", None, 10, 0, 0, 0),
    ]
    assert [(row.waited_s, row.parked_s, row.age_s) for row in rows] == [
        (2.0, 2.0, 5.0),
        (0.0, 0.0, 5.0),
        (1.0, 0.0, 3.0),
        (2.0, 0.0, 2.0),
    ]


def test_a_row_tells_all_of_one_request() -> None:
    desk = Desk(seats=4)
    desk.submit("family", 100, n=2, priority=3)
    desk.progress()
    desk.now = 1.0
    desk.park("family", 60.0, HoldEnd.CANCEL)
    desk.now = 3.0
    desk.parked("family")
    desk.now = 10.0
    assert desk.core.row("family", desk.now) == RequestRow(
        request_id="family",
        slot=0,
        owner="",
        state="parked",
        held=True,
        hold_left_s=51.0,
        then="cancel",
        cancelling=False,
        priority=3,
        effective_priority=3,
        prompt_tokens=100,
        tokens=100,
        n=2,
        seats=2,
        pages=0,
        arena_pages=8,
        parks=1,
        recomputes=0,
        passes=0,
        waited_s=0.0,
        parked_s=7.0,
        age_s=10.0,
        group_id="g1",
    )
    assert desk.core.row("ghost", desk.now) is None


def test_each_request_has_the_lowest_slot_number_that_was_free_and_keeps_it() -> None:
    desk = Desk(seats=1)
    for request_id in ("a", "b", "c"):
        desk.submit(request_id)
    desk.cancel("b")
    desk.submit("d")
    desk.submit("e")
    assert [desk.row(request_id).slot for request_id in ("a", "c", "d", "e")] == [0, 2, 1, 3]
    desk.progress()
    desk.park("a")
    desk.parked("a")
    assert desk.row("a").slot == 0
    desk.finished("c")
    desk.finished("a")
    desk.submit("f")
    assert desk.row("f").slot == 0
    desk.core.remove_group("g1", desk.now)
    desk.add_group("g1")
    desk.submit("g")
    assert desk.row("g").slot == 1  # d had it, and was lost with the group


def test_counts_by_state_and_by_tier() -> None:
    status = busy_desk().core.status(5.0)
    assert status.by_state == {"parked": 1, "resident": 2, "queued": 1}
    assert status.by_tier == {5: {"resident": 1}, 1: {"resident": 1}, 0: {"parked": 1}, -1: {"queued": 1}}
    assert (status.queued_requests, status.queued_tokens) == (1, 10)


def test_the_group_s_ledger() -> None:
    row = busy_desk().group()
    assert (row.pages_total, row.pages_free, row.pages_unclaimed) == (100, 93, 93)
    assert (row.arena_total, row.arena_free) == (50, 48)
    assert (row.seats, row.seats_free, row.parked) == (2, 0, 1)
    assert (row.shortfall, row.survivor_id) == (0, None)
    assert (row.commands_given, row.commands_done) == (4, 4)


def test_the_snapshot_becomes_json() -> None:
    status = asdict(busy_desk().core.status(5.0))
    assert json.loads(json.dumps(status))["groups"][0]["group_id"] == "g1"


def test_before_the_first_account_the_arena_is_unknown() -> None:
    row = Desk().group()
    assert (row.arena_total, row.arena_free, row.pages_free, row.commands_done) == (None, None, 64, 0)


def test_books_that_do_not_add_up_are_found() -> None:
    desk = busy_desk()
    ledger = desk.core._books.ledgers["g1"]
    ledger.seated["low"] = ledger.parked["low"]
    with pytest.raises(AdmissionCorrupt, match="seats 3 on 2"):
        desk.core.check_integrity()
    del ledger.seated["vip"], ledger.seated["high"]
    with pytest.raises(AdmissionCorrupt, match="low has a seat and is parked"):
        desk.core.check_integrity()
    del ledger.seated["low"]
    with pytest.raises(AdmissionCorrupt, match=r"lost or stray: \['high', 'vip'\]"):
        desk.core.check_integrity()
