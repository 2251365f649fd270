"""Orders from outside in every state: who may give them, what they wait for, what they change."""

import asyncio

import pytest

from scheduler.admission import (
    Draining,
    HoldEnd,
    HoldTerms,
    RequestRow,
    UnknownRequest,
    WrongState,
)
from scheduler.messages import Deferred, Finished, FinishReason, Park, ParkFailed, ParkReason, Restore
from tests.cluster.desks import PlayedEngine, Scene, submission

FOREVER = HoldTerms()


def parking(scene: Scene, request_id: str, wait_s: float = 20.0) -> "asyncio.Task[RequestRow]":
    return asyncio.create_task(scene.desk.orders.park(request_id, None, FOREVER, wait_s))


async def until_told(scene: Scene, kind: type) -> None:
    """Until the engine has been told one of these."""
    async with asyncio.timeout(5):
        while not scene.engine.told(kind):
            await asyncio.sleep(0)
            await scene.desk.flush()


async def test_another_owners_request_is_unknown_to_every_order_and_the_admin_sees_all() -> None:
    scene = Scene()
    await scene.resident("mine", owner="k1")
    await scene.resident("theirs", owner="k2")
    desk = scene.desk.orders
    assert [row.request_id for row in desk.requests("k1")] == ["mine"]
    assert [row.request_id for row in desk.requests(None)] == ["mine", "theirs"]
    assert desk.requests("") == []
    for refused in (
        lambda: desk.request("theirs", "k1"),
        lambda: desk.end("theirs", "k1"),
        lambda: desk.set_priority("theirs", "k1", 5),
        lambda: desk.request("nobody's", None),
    ):
        with pytest.raises(UnknownRequest):
            refused()
    with pytest.raises(UnknownRequest):
        await desk.park("theirs", "k1", FOREVER, 0.0)
    with pytest.raises(UnknownRequest):
        await desk.unpark("theirs", "k1", 0.0)
    assert desk.request("theirs", None) == desk.request("theirs", "k2")
    assert scene.kinds() == ["submitted", "admitted", "submitted", "admitted"]


async def test_a_park_returns_when_the_engine_says_that_the_pages_are_free() -> None:
    scene = Scene()
    await scene.resident("a")
    order = parking(scene, "a")
    await until_told(scene, Park)
    assert scene.engine.told(Park) == [Park(number=2, request_id="a", reason=ParkReason.EXPLICIT)]
    assert not order.done()
    await scene.engine.park("a", ParkReason.EXPLICIT)
    row = await order
    assert (row.state, row.held, row.pages, row.arena_pages) == ("parked", True, 0, 2)
    scene.clock += 1000
    scene.desk.tick()
    await scene.desk.flush()
    assert scene.engine.told(Restore) == []


async def test_a_park_that_takes_too_long_returns_as_parking_and_goes_on() -> None:
    scene = Scene()
    await scene.resident("a")
    row = await scene.desk.orders.park("a", None, FOREVER, 0.01)
    assert (row.state, row.held) == ("parking", True)
    await scene.engine.park("a", ParkReason.EXPLICIT)
    assert scene.desk.orders.request("a", None).state == "parked"


async def test_a_park_that_fails_is_a_wrong_state_with_the_engines_reason_and_the_request_runs_on() -> None:
    scene = Scene()
    await scene.resident("a")
    order = parking(scene, "a")
    await until_told(scene, Park)
    await scene.engine.say(ParkFailed(load=scene.engine.load(), request_id="a", reason="the arena is full"))
    with pytest.raises(WrongState, match=r"request a is resident: .*the arena is full"):
        await order
    row = scene.desk.orders.request("a", None)
    assert (row.state, row.held) == ("resident", False)
    assert scene.kinds() == ["submitted", "admitted", "held", "park_failed"]


async def test_a_request_that_ends_before_it_is_parked_is_a_wrong_state() -> None:
    scene = Scene()
    await scene.resident("a", "b")
    orders = [parking(scene, "a"), parking(scene, "b")]
    await until_told(scene, Park)
    await scene.engine.finish("a")
    scene.desk.orders.end("b", None)
    with pytest.raises(WrongState, match="it came to its end before it was parked"):
        await orders[0]
    with pytest.raises(WrongState, match="request b is ending: it was cancelled before it was parked"):
        await orders[1]


async def test_who_waits_for_a_request_is_told_nothing_of_another_owners_that_takes_its_id() -> None:
    scene = Scene()
    await scene.resident("a", owner="k1")
    park = asyncio.create_task(scene.desk.orders.park("a", "k1", FOREVER, 20.0))
    await until_told(scene, Park)
    scene.desk.take_words(
        "g", [Finished(load=scene.engine.load(), request_id="a", num_tokens=1, reason=FinishReason.STOP)]
    )
    scene.desk.submit(submission("a", owner="k2"))
    with pytest.raises(WrongState, match="it came to its end before it was parked"):
        await park
    unpark = asyncio.create_task(scene.desk.orders.unpark("a", "k2", 20.0))
    assert (await unpark).owner == "k2"


async def test_a_queued_request_is_held_at_once_and_comes_in_after_its_unpark() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("q"))
    row = await scene.desk.orders.park("q", None, FOREVER, 20.0)
    assert (row.state, row.held) == ("queued", True)
    await scene.engine.finish("a")
    assert scene.desk.orders.request("q", None).state == "queued"
    back = asyncio.create_task(scene.desk.orders.unpark("q", None, 20.0))
    row = await back
    assert (row.state, row.held) == ("resident", False)


async def test_a_park_that_meets_a_deferred_admission_is_held_in_the_queue() -> None:
    scene = Scene()
    scene.desk.submit(submission("a"))
    order = parking(scene, "a")
    await until_told(scene, Park)
    await scene.engine.say(Deferred(load=scene.engine.load(), request_id="a"))
    row = await order
    assert (row.state, row.held) == ("queued", True)


async def test_an_unpark_with_a_wait_returns_when_it_runs_again() -> None:
    scene = Scene()
    await scene.resident("a")
    order = parking(scene, "a")
    await until_told(scene, Park)
    await scene.engine.park("a", ParkReason.EXPLICIT)
    await order
    back = asyncio.create_task(scene.desk.orders.unpark("a", None, 20.0))
    await until_told(scene, Restore)
    assert not back.done()
    await scene.engine.restore("a")
    assert ((await back).state, (await back).held) == ("resident", False)


async def test_park_and_unpark_are_idempotent_and_a_second_park_replaces_the_terms() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("q"))
    desk = scene.desk.orders
    await desk.park("q", None, HoldTerms(deadline_s=5), 0.0)
    row = await desk.park("q", None, HoldTerms(deadline_s=50, then=HoldEnd.CANCEL), 0.0)
    assert (row.hold_left_s, row.then) == (50, "cancel")
    await desk.unpark("q", None, 0.0)
    row = await desk.unpark("q", None, 0.0)
    assert (row.held, row.then) == (False, None)
    assert scene.kinds()[-3:] == ["held", "held", "unheld"]


async def test_a_deadline_has_an_alarm_of_its_own_between_the_ticks() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("q"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    scene.desk._host.now = lambda: 100.0 + (loop.time() - began)
    await scene.desk.orders.park("q", None, HoldTerms(deadline_s=0.02), 0.0)
    after = scene.desk.watch.read(0).next
    (event,) = (await scene.desk.watch.wait(after, 5.0)).events
    assert (event.kind, event.request_id, event.facts["by"]) == ("unheld", "q", "deadline")
    assert not scene.desk.orders.request("q", None).held


async def test_a_caller_who_waits_for_a_park_learns_of_an_unpark_by_another() -> None:
    scene = Scene()
    await scene.resident("a")
    order = parking(scene, "a")
    await until_told(scene, Park)
    await scene.desk.orders.unpark("a", None, 0.0)
    row = await order
    assert (row.state, row.held) == ("parking", False)


async def test_a_priority_changes_in_every_state_and_an_equal_one_is_no_news() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("q"))
    desk = scene.desk.orders
    assert desk.set_priority("q", None, -3).priority == -3
    assert desk.set_priority("q", None, -3).priority == -3
    assert desk.set_priority("a", None, 7).priority == 7
    facts = [(request_id, facts) for kind, request_id, facts in scene.told() if kind == "priority"]
    assert facts == [("q", {"tier": -3, "before": 0}), ("a", {"tier": 7, "before": 0})]


async def test_a_priority_can_displace_a_resident_at_once() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("q"))
    scene.desk.orders.set_priority("q", None, 5)
    await scene.desk.flush()
    (order,) = scene.engine.told(Park)
    assert isinstance(order, Park)
    assert order.reason is ParkReason.SEAT


async def test_parking_that_is_off_is_a_wrong_state() -> None:
    scene = Scene(engine=False)
    engine = PlayedEngine(scene.desk)
    engine.register(park=False)
    scene.engine = engine
    await scene.resident("a")
    with pytest.raises(WrongState, match="parking is off"):
        await scene.desk.orders.park("a", None, FOREVER, 1.0)
    assert scene.kinds() == ["submitted", "admitted"]


async def test_draining_refuses_what_is_new_and_is_told_once() -> None:
    scene = Scene()
    await scene.resident("a")
    scene.desk.orders.drain()
    scene.desk.orders.drain()
    with pytest.raises(Draining):
        scene.desk.submit(submission("b"))
    assert (await scene.desk.status())["draining"] is True
    scene.desk.orders.undrain()
    scene.desk.submit(submission("b"))
    assert scene.kinds() == ["submitted", "admitted", "draining", "undrained", "submitted"]


async def test_an_order_for_one_that_is_ending_says_so() -> None:
    scene = Scene()
    await scene.resident("a")
    scene.desk.orders.end("a", None)
    for order in (scene.desk.orders.park("a", None, FOREVER, 0.0), scene.desk.orders.unpark("a", None, 0.0)):
        with pytest.raises(WrongState, match="request a is ending"):
            await order
    await scene.engine.finish("a", FinishReason.CANCELLED)
    scene.desk.check_integrity()
