"""What parking costs while it doesn't fire: a scan, and nothing that stays or is said."""

import gc
import tracemalloc

import pytest

from scheduler.engine.sequence import Sequence
from scheduler.messages import Pressure, Progress
from tests.scheduler.engine.rig import Rig


def busy(**sizes: bool) -> Rig:
    """Seven choices in the middle of long answers, with room to spare."""
    rig = Rig(pages=400, page_size=4, inflight=1, **sizes)  # type: ignore[arg-type]
    for name in "abcd":
        rig.admit(name, prompt=6, max_tokens=180)
    rig.admit("e", prompt=6, max_tokens=180, n=3)
    for _ in range(4):
        rig.turn()
    return rig


def test_steps_without_pressure_send_no_message_but_the_periodic_account() -> None:
    rig = busy()
    before = len(rig.events)
    for _ in range(150):
        rig.turn()
    assert {type(event) for event in rig.events[before:]} == {Progress}
    assert not any(plan.copies_out or plan.copies_in or plan.resets for plan in rig.ranks.plans)


def test_plans_and_messages_are_the_same_with_parking_on_and_off() -> None:
    on, off = busy(park=True), busy(park=False)
    for _ in range(200):
        on.turn()
        off.turn()
    assert on.ranks.plans == off.ranks.plans and on.said == off.said
    assert [type(event) for event in on.events] == [type(event) for event in off.events]


def test_the_pressure_scan_keeps_no_memory_and_says_nothing() -> None:
    rig = busy()
    gauge = rig.core._gauge
    gauge.read(0.0, 10)  # what is cached at a first call is there
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for _ in range(1000):
        gauge.read(0.0, 10)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1000, "not a byte a scan"
    assert peak - before < 600, "no more at any time than what a loop and a sum need"
    assert rig.core.take_events() == [] and rig.of(Pressure) == []


@pytest.mark.parametrize("park", [True, False])
def test_the_scan_is_one_look_at_each_choice(park: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = busy(park=park)
    looked: list[int] = []
    claim = rig.core._room.claim

    def look(seq: Sequence) -> int:
        looked.append(seq.seq_id)
        return claim(seq)

    monkeypatch.setattr(rig.core._room, "claim", look)
    rig.core._gauge.read(0.0, 10)
    assert looked == [0, 1, 2, 3, 4, 5, 6]
