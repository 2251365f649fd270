"""A cancelled request gives everything back, exactly once, wherever it was and whatever was in flight."""

import pytest

from scheduler.messages import Finished, FinishReason, TokenEvent
from tests.scheduler.engine.rig import Rig


@pytest.mark.parametrize("inflight", [1, 2])
@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("place", ["prefill", "decode", "parking", "park planned", "parked", "restoring", "back"])
def test_a_cancel_gives_all_pages_and_slots_back(place: str, answered: bool, inflight: int) -> None:
    rig = Rig(inflight=inflight, step_tokens=8)
    rig.admit("b", prompt=2, max_tokens=30)
    rig.admit("a", prompt=12, max_tokens=50)
    bring(rig, place)
    if answered:
        while rig.ranks.num_unanswered:
            rig.answer()
    said = len(rig.said.get("a", []))
    rig.cancel("a")
    rig.settle()
    (last,) = rig.said["a"][said:] if not answered else rig.said["a"][-1:]
    assert last.finish is FinishReason.CANCELLED
    assert [(event.reason, event.error) for event in rig.of(Finished, "a")] == [(FinishReason.CANCELLED, None)]
    assert rig.tokens("b") == rig.solo("b")
    assert rig.core.is_idle and rig.free == (16, 64) and rig.ranks.mirrors == {}


def bring(rig: Rig, place: str) -> None:
    """Turn until "a" is there, with plans in flight where that can be."""
    if place == "prefill":
        rig.plan()
        return
    for _ in range(4):
        rig.turn()
    rig.plan_all()
    if place == "decode":
        return
    rig.park("a")
    if place == "parking":
        rig.core.carry_out(rig.now)
        return
    rig.turn()
    rig.plan_all()
    if place == "park planned":
        return
    while "a" in {one.request_id for one in rig.core.account().residents}:
        rig.turn()
    if place == "parked":
        return
    rig.restore("a")
    rig.core.carry_out(rig.now)
    if place == "back":
        for _ in range(4):
            rig.turn()


def test_a_cancelled_stream_stops_at_once_though_a_step_is_in_flight() -> None:
    rig = Rig(inflight=2)
    rig.admit("a", max_tokens=50)
    for _ in range(3):
        rig.turn()
    rig.plan_all()
    rig.cancel("a")
    rig.core.carry_out(rig.now)
    assert rig.core.take_tokens() == {"gateway": [TokenEvent(request_id="a", finish=FinishReason.CANCELLED)]}
    steps = rig.ranks.next_step
    rig.settle()
    assert rig.core.is_idle and rig.ranks.next_step == steps + 1, "one plan, and only to let the ranks forget"
    assert rig.ranks.plans[-1].finished == (0,) and rig.ranks.plans[-1].chunks == ()


def test_pages_of_a_cancelled_request_wait_for_the_plans_in_flight() -> None:
    rig = Rig(inflight=2, page_size=4)
    rig.admit("a", prompt=8, max_tokens=50)
    rig.plan_all()
    rig.cancel("a")
    rig.plan_all()
    assert rig.free[0] == 13 and rig.of(Finished) == []
    rig.answer()
    assert rig.free[0] == 13 and rig.of(Finished) == []
    rig.answer()
    assert rig.free[0] == 16 and len(rig.of(Finished)) == 1


def test_a_parked_requests_time_out_counts_until_its_end() -> None:
    rig = Rig()
    rig.admit("a", max_tokens=50)
    rig.turn()
    rig.park("a")
    rig.settle()
    at = rig.now
    rig.now += 5.0
    rig.cancel("a")
    rig.settle()
    last = rig.said["a"][-1]
    assert (last.finish, last.parks) == (FinishReason.CANCELLED, 1)
    assert last.parked_s == pytest.approx(5.0, abs=0.05) and at > 0
