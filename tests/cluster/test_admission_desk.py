"""The desk toward gateways and engines: everybody who reads a request hears of its end, whoever ends it."""

import pytest

from cluster.engine_port import EngineLost, Farewell, GatewayLost
from scheduler.admission import AdmissionPolicy, HoldEnd, HoldTerms, NeverFits, NoGroup, QueueFull
from scheduler.messages import Admit, Cancel, Deferred, FinishReason
from tests.cluster.desks import PlayedEngine, Scene, submission


def farewell(request_id: str, choices: int = 1) -> Farewell:
    return Farewell(request_id=request_id, gateway_id="gateway", choices=choices, finish=FinishReason.CANCELLED)


def nobody_is_read(scene: Scene) -> bool:
    return scene.desk._host._readers == {}


async def test_commands_reach_the_engine_in_their_order() -> None:
    scene = Scene()
    scene.desk.submit(submission("one"))
    scene.desk.cancel("one")
    await scene.desk.flush()
    assert [(type(order), order.number) for order in scene.engine.sent] == [(Admit, 1), (Cancel, 2)]  # type: ignore[union-attr]


async def test_a_request_that_ends_is_forgotten_whichever_word_ends_it() -> None:
    scene = Scene()
    await scene.resident("finished")
    scene.desk.submit(submission("deferred"))
    await scene.engine.finish("finished")
    scene.desk.cancel("deferred")
    await scene.engine.say(Deferred(load=scene.engine.load(), request_id="deferred"))
    assert nobody_is_read(scene)
    assert scene.engine.farewells == []  # the one was told by the engine, the other is read by nobody
    scene.desk.check_integrity()


async def test_a_queued_request_that_is_ended_by_an_order_is_told_to_its_gateway_once_for_every_choice() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("queued", n=2))
    row = scene.desk.orders.end("queued", None)
    assert (row.state, row.cancelling) == ("queued", True)
    await scene.desk.flush()
    assert scene.engine.farewells == [farewell("queued", choices=2)]
    assert scene.kinds()[-2:] == ["cancelled", "finished"]


async def test_an_order_to_end_that_meets_a_deferred_admission_is_told_to_the_gateway_too() -> None:
    scene = Scene()
    scene.desk.submit(submission("a"))
    scene.desk.orders.end("a", None)
    await scene.desk.flush()
    assert scene.engine.farewells == []  # its engine may have it
    await scene.engine.say(Deferred(load=scene.engine.load(), request_id="a"))
    assert scene.engine.farewells == [farewell("a")]
    assert [kind for kind in scene.kinds() if kind == "admitted"] == []


async def test_a_resident_that_is_ended_by_an_order_is_told_by_its_engine_alone() -> None:
    scene = Scene()
    await scene.resident("a")
    assert scene.desk.orders.end("a", None).cancelling
    assert scene.desk.orders.end("a", None).cancelling
    await scene.engine.finish("a", FinishReason.CANCELLED)
    assert len(scene.engine.told(Cancel)) == 1
    assert scene.engine.farewells == []
    assert scene.kinds() == ["submitted", "admitted", "cancelled", "finished"]


async def test_a_hold_that_ends_in_a_cancel_tells_the_gateway_of_a_request_no_engine_knew() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("queued"))
    await scene.desk.orders.park("queued", None, HoldTerms(deadline_s=60, then=HoldEnd.CANCEL), 0.0)
    scene.clock += 60
    scene.desk.tick()
    await scene.desk.flush()
    assert scene.engine.farewells == [farewell("queued")]
    assert scene.told()[-2][:2] == ("cancelled", "queued")
    assert scene.told()[-2][2]["by"] == "deadline"


async def test_a_gateway_that_is_gone_takes_its_requests_with_it_and_hears_nothing() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("queued"))
    scene.desk.submit(submission("other", gateway="other"))
    await scene.engine.say(GatewayLost("gateway"))  # type: ignore[arg-type]
    assert len(scene.engine.told(Cancel)) == 4
    assert scene.engine.farewells == []
    assert [row.request_id for row in scene.desk.orders.requests(None) if not row.cancelling] == ["other"]


async def test_a_lost_group_ends_what_it_had_by_way_of_another_engine_and_the_rest_goes_on() -> None:
    scene = Scene()
    await scene.resident("a")
    other = PlayedEngine(scene.desk, "h")
    other.register()
    await scene.engine.say(EngineLost("rank 1 died"))  # type: ignore[arg-type]
    await scene.desk.flush()
    text = "g is lost: rank 1 died"
    lost = Farewell(request_id="a", gateway_id="gateway", choices=1, finish=FinishReason.ERROR, error=text)
    assert other.farewells == [lost]
    assert [address.group_id for address in scene.desk.addresses] == ["h"]
    kind, request_id, facts = scene.told()[-1]
    assert (kind, request_id, facts["reason"], facts["error"]) == ("finished", "a", "error", text)
    scene.desk.submit(submission("b"))
    await scene.desk.flush()
    assert len(other.told(Admit)) == 1


async def test_the_last_group_stays_when_its_ranks_are_lost_to_say_why_requests_fail() -> None:
    scene = Scene()
    await scene.engine.say(EngineLost("rank 1 died"))  # type: ignore[arg-type]
    assert [address.group_id for address in scene.desk.addresses] == ["g"]


async def test_an_engine_that_takes_nothing_is_lost_with_what_it_had() -> None:
    scene = Scene()
    scene.engine.broken = True
    scene.desk.submit(submission("a"))
    await scene.desk.flush()
    assert scene.desk.addresses == []
    assert nobody_is_read(scene)
    with pytest.raises(NoGroup):
        scene.desk.submit(submission("b"))
    scene.desk.check_integrity()


async def test_refusals_are_raised_and_counted_by_their_code() -> None:
    empty = Scene(engine=False)
    with pytest.raises(NoGroup):
        empty.desk.check_room()
    scene = Scene(AdmissionPolicy(max_queued_requests=1))
    with pytest.raises(NeverFits):
        scene.desk.submit(submission("long", prompt=2000))
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("queued"))
    with pytest.raises(QueueFull):
        scene.desk.check_room()
    refusals = [reading.labels for reading in [*empty.readings, *scene.readings] if reading.name == "parkade_refusals"]
    assert refusals == [("no_group",), ("never_fits",), ("queue_full",)]


async def test_status_is_plain_data_of_one_size_however_many_live() -> None:
    scene = Scene()
    await scene.resident("a", owner="k1")
    status = await scene.desk.status()
    scene.desk.submit(submission("b"))
    later = await scene.desk.status()
    assert (status["by_state"], later["by_state"]) == ({"resident": 1}, {"resident": 2})
    assert status["draining"] is False
    assert "requests" not in status
    assert set(later) == set(status)
