"""Gauges and counters: exact values, labels of a bounded number, and zeros for what is there no more."""

import pytest

from cluster.engine_figures import EngineFigures
from cluster.instruments import ADMISSION_INSTRUMENTS, ENGINE_INSTRUMENTS, GATEWAY_INSTRUMENTS
from cluster.readings import Reading, tier_label
from scheduler.admission import HoldTerms
from scheduler.engine.counters import EngineCounters
from scheduler.messages import ParkReason
from tests.cluster.desks import PlayedEngine, Scene, submission


def gauges(scene: Scene) -> dict[tuple[str, ...], float]:
    scene.readings.clear()
    scene.desk.tell_gauges()
    return {(reading.name, *reading.labels): reading.value for reading in scene.readings}


@pytest.mark.parametrize(
    ("priority", "label"),
    [(0, "0"), (10, "10"), (11, ">10"), (2**31 - 1, ">10"), (-10, "-10"), (-11, "<-10"), (-(2**31), "<-10")],
)
def test_any_priority_has_one_of_23_labels(priority: int, label: str) -> None:
    assert tier_label(priority) == label


async def test_gauges_tell_how_things_stand_and_go_back_to_zero() -> None:
    scene = Scene()
    await scene.resident("a", "b", "c", "d")
    scene.desk.submit(submission("high", priority=50, prompt=33))
    scene.desk.submit(submission("waits"))
    scene.desk.submit(submission("q"))
    await scene.desk.orders.park("q", None, HoldTerms(), 0.0)
    await scene.engine.park("d", ParkReason.SEAT)
    assert gauges(scene) == {
        ("parkade_requests", "resident", "0"): 3,
        ("parkade_requests", "parked", "0"): 1,
        ("parkade_requests", "resident", ">10"): 1,
        ("parkade_requests", "queued", "0"): 1,
        ("parkade_requests", "held", "0"): 1,
        ("parkade_queued_tokens",): 20,
        ("parkade_pages", "g", "free"): 58,
        ("parkade_pages", "g", "used"): 6,
        ("parkade_arena_used_bytes", "g"): 2000,
        ("parkade_arena_budget_bytes", "g"): 64_000,
    }
    await scene.engine.admit()
    for request_id in ("q", "waits"):
        scene.desk.orders.end(request_id, None)
    for request_id in ("a", "b", "c", "high"):
        await scene.engine.finish(request_id)
    await scene.engine.restore("d")
    await scene.engine.finish("d")
    idle = gauges(scene)
    assert idle.pop(("parkade_pages", "g", "free")) == 64
    assert idle.pop(("parkade_arena_budget_bytes", "g")) == 64_000
    assert set(idle.values()) == {0}
    assert ("parkade_requests", "held", "0") in idle
    assert [name for name in gauges(scene) if name[0] == "parkade_requests"] == []


async def test_the_gauges_of_a_lost_group_are_zero() -> None:
    scene = Scene()
    PlayedEngine(scene.desk, "h").register()
    await scene.engine.admit()
    assert gauges(scene)["parkade_pages", "h", "free"] == 64
    scene.desk.lose_group("h", "gone")
    assert gauges(scene)["parkade_pages", "h", "free"] == 0


def test_an_engine_tells_what_its_counters_have_gained() -> None:
    counters = EngineCounters()
    figures = EngineFigures("g", counters)
    assert figures.take() == []
    counters.note_step(0.5)
    counters.note_step(0.25)
    counters.prompt_tokens += 100
    counters.generated_tokens += 2
    counters.copies += 1
    assert figures.take() == [
        Reading("parkade_step_seconds", 0.5, ("g",)),
        Reading("parkade_step_seconds", 0.25, ("g",)),
        Reading("parkade_prompt_tokens", 100, ("g",)),
        Reading("parkade_generated_tokens", 2, ("g",)),
        Reading("parkade_copies", 1, ("g", "done")),
    ]
    counters.generated_tokens += 3
    counters.recomputed_tokens += 40
    counters.failed_copies += 1
    counters.corrupt_copies += 1
    assert figures.take() == [
        Reading("parkade_recomputed_tokens", 40, ("g",)),
        Reading("parkade_generated_tokens", 3, ("g",)),
        Reading("parkade_copies", 1, ("g", "failed")),
        Reading("parkade_copies", 1, ("g", "corrupt")),
    ]
    assert figures.take() == []


def test_instruments_have_names_of_their_own_units_in_them_and_ascending_buckets() -> None:
    instruments = [*ADMISSION_INSTRUMENTS, *ENGINE_INSTRUMENTS, *GATEWAY_INSTRUMENTS]
    names = [instrument.name for instrument in instruments]
    assert len(set(names)) == len(names)
    for instrument in instruments:
        assert instrument.name.startswith("parkade_") and not instrument.name.endswith("_total")
        assert instrument.description
        assert (instrument.kind == "histogram") == bool(instrument.bounds)
        assert list(instrument.bounds) == sorted(set(instrument.bounds))
