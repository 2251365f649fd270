"""What the watch, the metrics and the log tell of a request's life: each fact exactly, and nothing of its content."""

import logging

import pytest

from cluster.instruments import ADMISSION_INSTRUMENTS
from cluster.readings import Reading
from scheduler.admission import HoldTerms
from scheduler.messages import Deferred, ParkFailed, ParkMode, ParkReason, Pressure, Restore
from tests.cluster.desks import UNIX_S, Scene, submission

FORBIDDEN = ("prompt_tokens", "sampling", "text", "token_ids")


async def whole_life() -> Scene:
    """Submitted at 100 s, held and copied out at 110, unparked at 112, back at 115, dropped at 120, back at 121."""
    scene = Scene()
    scene.desk.submit(submission("a", priority=2))
    scene.clock = 110.0
    await scene.engine.admit()
    await scene.desk.orders.park("a", None, HoldTerms(), 0.0)
    await scene.engine.park("a", ParkReason.EXPLICIT)
    scene.clock = 112.0
    await scene.desk.orders.unpark("a", None, 0.0)
    scene.clock = 115.0
    await scene.engine.restore("a")
    scene.desk.orders.set_priority("a", None, 0)
    for number in range(4):
        scene.desk.submit(submission(f"high-{number}", priority=9))
    await scene.engine.admit()
    scene.clock = 120.0
    await scene.engine.park("a", ParkReason.SEAT, ParkMode.RECOMPUTE)
    scene.clock = 121.0
    await scene.engine.finish("high-0")
    assert len(scene.engine.told(Restore)) == 2
    await scene.engine.restore("a", ParkMode.RECOMPUTE)
    scene.clock = 130.0
    await scene.engine.finish("a")
    return scene


async def test_the_watch_tells_a_life_in_order() -> None:
    scene = await whole_life()
    assert [event.number for event in scene.events()] == list(range(len(scene.events())))
    assert [(kind, facts) for kind, request_id, facts in scene.told() if request_id == "a"] == [
        ("submitted", {"tier": 2, "tokens": 20, "choices": 1}),
        ("admitted", {"tier": 2, "tokens": 20, "waited_s": 0.0}),
        ("held", {"tier": 2}),
        (
            "parked",
            {
                "tier": 2,
                "tokens": 20,
                "pages": 2,
                "reason": "explicit",
                "mode": "copy",
                "seconds": 0.25,
                "bytes": 2000,
                "parks": 1,
                "free_before": 62,
                "free": 64,
                "total": 64,
            },
        ),
        ("unheld", {"tier": 2, "by": "order"}),
        (
            "restored",
            {
                "tier": 2,
                "tokens": 20,
                "mode": "copy",
                "reason": "",
                "seconds": 0.125,
                "bytes": 2000,
                "parked_s": 5.0,
                "was_held": 1,
            },
        ),
        ("priority", {"tier": 0, "before": 2}),
        (
            "parked",
            {
                "tier": 0,
                "tokens": 20,
                "pages": 2,
                "reason": "seat",
                "mode": "recompute",
                "seconds": 0.0,
                "bytes": 0,
                "parks": 2,
                "free_before": 62,
                "free": 58,
                "total": 64,
            },
        ),
        (
            "restored",
            {
                "tier": 0,
                "tokens": 20,
                "mode": "recompute",
                "reason": "",
                "seconds": 0.0,
                "bytes": 0,
                "parked_s": 1.0,
                "was_held": 0,
            },
        ),
        ("finished", {"tier": 0, "reason": "stop", "tokens": 20, "parks": 2, "recomputes": 1, "age_s": 30.0}),
    ]
    assert {event.unix_s for event in scene.events()} <= {UNIX_S + at for at in (100, 110, 112, 115, 120, 121, 130)}


async def test_the_metrics_get_each_figure_of_it_once() -> None:
    scene = await whole_life()
    mine = [reading for reading in scene.readings if reading.labels[:1] != ("9",)]
    assert mine == [
        Reading("parkade_queue_wait_seconds", 0.0, ("2",)),
        Reading("parkade_parks", 1, ("2", "explicit", "copy")),
        Reading("parkade_copy_seconds", 0.25, ("g", "out")),
        Reading("parkade_copy_bytes", 2000.0, ("g", "out")),
        Reading("parkade_restores", 1, ("2", "copy")),
        Reading("parkade_parked_wait_seconds", 5.0, ("2", "held")),
        Reading("parkade_copy_seconds", 0.125, ("g", "in")),
        Reading("parkade_copy_bytes", 2000.0, ("g", "in")),
        Reading("parkade_parks", 1, ("0", "seat", "recompute")),
        Reading("parkade_restores", 1, ("0", "recompute")),
        Reading("parkade_parked_wait_seconds", 1.0, ("0", "scheduler")),
        Reading("parkade_finished_requests", 1, ("0", "stop")),
    ]


async def test_every_figure_is_one_of_a_declared_instrument_and_no_counter_gets_a_zero() -> None:
    scene = await whole_life()
    scene.desk.tell_gauges()
    declared = {instrument.name: instrument for instrument in ADMISSION_INSTRUMENTS}
    assert scene.readings
    for reading in scene.readings:
        instrument = declared[reading.name]
        assert len(reading.labels) == len(instrument.labels)
        assert instrument.kind != "counter" or reading.value > 0


async def test_each_park_has_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="cluster.chronicle"):
        await whole_life()
    assert caplog.messages == [
        "parked a: tier 2, 20 tokens, 2 pages, reason explicit, mode copy, 0.2500 s, 2000 bytes, park 1 of it; "
        "pool free 62 -> 64 of 64 pages",
        "parked a: tier 0, 20 tokens, 2 pages, reason seat, mode recompute, 0.0000 s, 0 bytes, park 2 of it; "
        "pool free 62 -> 58 of 64 pages",
    ]


async def test_no_event_holds_a_prompt() -> None:
    for event in (await whole_life()).events():
        assert all(isinstance(value, str | int | float) for value in event.facts.values())
        assert not set(event.facts) & set(FORBIDDEN)


async def test_an_admission_that_found_no_room_is_told_when_it_did_with_the_whole_wait() -> None:
    scene = Scene()
    scene.desk.submit(submission("a"))
    await scene.desk.flush()
    await scene.engine.say(Deferred(load=scene.engine.load(), request_id="a"))
    assert scene.kinds() == ["submitted"]
    scene.clock += 4.0
    scene.desk.tick()
    await scene.engine.admit()
    assert scene.told()[1] == ("admitted", "a", {"tier": 0, "tokens": 20, "waited_s": 4.0})
    assert [reading.value for reading in scene.readings if reading.name == "parkade_queue_wait_seconds"] == [4.0]


async def test_a_request_that_ends_with_its_first_account_was_admitted_before() -> None:
    scene = Scene()
    scene.desk.submit(submission("a"))
    await scene.desk.flush()
    await scene.engine.finish("a")
    assert scene.kinds() == ["submitted", "admitted", "finished"]


async def test_pressure_and_failed_parks_are_told_with_their_numbers() -> None:
    scene = Scene()
    await scene.resident("a", "b")
    await scene.engine.say(Pressure(load=scene.engine.load(), shortfall=3))
    assert scene.told()[-1] == ("pressure", "", {"shortfall": 3, "free": 60, "total": 64})
    assert scene.events()[-1].group_id == "g"
    await scene.desk.orders.park("a", None, HoldTerms(deadline_s=9), 0.0)
    assert scene.told()[-1] == ("held", "a", {"tier": 0, "deadline_s": 9, "then": "unpark"})
    await scene.engine.say(ParkFailed(load=scene.engine.load(), request_id="a", reason="no host memory"))
    assert ("park_failed", "a", {"tier": 0, "reason": "no host memory"}) in scene.told()
    assert Reading("parkade_failed_parks", 1, ("0",)) in scene.readings


async def test_tokens_are_those_of_the_moment_and_not_of_the_last_account(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    await scene.resident("a")
    scene.engine.grow("a", 27)
    await scene.desk.orders.park("a", None, HoldTerms(), 0.0)
    with caplog.at_level(logging.INFO, logger="cluster.chronicle"):
        await scene.engine.park("a", ParkReason.EXPLICIT)
    assert caplog.messages[0].startswith("parked a: tier 0, 27 tokens, ")
    assert scene.desk.orders.request("a", None).tokens == 27
    await scene.desk.orders.unpark("a", None, 0.0)
    await scene.engine.restore("a")
    scene.engine.grow("a", 31)
    await scene.engine.finish("a")
    told = {kind: facts["tokens"] for kind, _, facts in scene.told() if "tokens" in facts}
    assert told == {"submitted": 20, "admitted": 20, "parked": 27, "restored": 27, "finished": 31}


async def test_a_park_that_the_engine_does_by_itself_is_told_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    await scene.resident("a", "b")
    with caplog.at_level(logging.INFO, logger="cluster.chronicle"):
        await scene.engine.park("b", ParkReason.PRESSURE, ParkMode.RECOMPUTE)
    assert caplog.messages == [
        "parked b: tier 0, 20 tokens, 2 pages, reason pressure, mode recompute, 0.0000 s, 0 bytes, park 1 of it; "
        "pool free 60 -> 62 of 64 pages"
    ]
    scene.clock += 2.0
    await scene.engine.restore("b", ParkMode.RECOMPUTE)
    assert [(kind, facts.get("parked_s")) for kind, _, facts in scene.told()[-2:]] == [
        ("parked", None),
        ("restored", 2.0),
    ]
    counted = [reading for reading in scene.readings if reading.name in ("parkade_parks", "parkade_restores")]
    assert counted == [
        Reading("parkade_parks", 1, ("0", "pressure", "recompute")),
        Reading("parkade_restores", 1, ("0", "recompute")),
    ]


async def test_a_park_before_any_account_counts_from_an_empty_pool() -> None:
    scene = Scene()
    scene.desk.submit(submission("a"))
    await scene.desk.orders.park("a", None, HoldTerms(), 0.0)
    await scene.desk.flush()
    scene.engine.has_taken_in()
    await scene.engine.park("a", ParkReason.EXPLICIT)
    kind, _, facts = scene.told()[-1]
    assert (kind, facts["free_before"], facts["free"]) == ("parked", 64, 64)


async def parked_and_ordered_back() -> Scene:
    """Parked by an order at 100 s, unparked, and on its way back when a second order says park."""
    scene = Scene()
    await scene.resident("a")
    await scene.desk.orders.park("a", None, HoldTerms(), 0.0)
    await scene.engine.park("a", ParkReason.EXPLICIT)
    await scene.desk.orders.unpark("a", None, 0.0)
    scene.clock = 103.0
    assert (await scene.desk.orders.park("a", None, HoldTerms(), 0.0)).state == "parking"
    await scene.desk.flush()
    return scene


async def test_a_park_ordered_while_it_comes_back_is_a_second_one_and_the_first_keeps_its_wait() -> None:
    scene = await parked_and_ordered_back()
    await scene.engine.restore("a")
    await scene.engine.park("a", ParkReason.EXPLICIT)
    told = [(kind, facts.get("parked_s")) for kind, _, facts in scene.told() if kind in ("parked", "restored")]
    assert told == [("parked", None), ("restored", 3.0), ("parked", None)]
    assert scene.desk.orders.request("a", None).parks == 2


async def test_a_park_ordered_while_it_comes_back_in_vain_is_still_the_first_one() -> None:
    scene = await parked_and_ordered_back()
    await scene.engine.say(Deferred(load=scene.engine.load(), request_id="a"))
    await scene.engine.still_parked("a")
    row = scene.desk.orders.request("a", None)
    assert (row.state, row.held, row.parks) == ("parked", True, 1)
    assert [kind for kind, _, _ in scene.told() if kind in ("parked", "restored")] == ["parked"]
    await scene.desk.orders.unpark("a", None, 0.0)
    scene.clock = 110.0
    await scene.engine.restore("a")
    (facts,) = [facts for kind, _, facts in scene.told() if kind == "restored"]
    assert facts["parked_s"] == 10.0
