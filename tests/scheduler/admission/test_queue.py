"""Who enters when: order, age, and how a request put back stands where it stood."""

import pytest

from scheduler.admission import AdmissionPolicy
from scheduler.admission.queue import FreshQueue
from scheduler.admission.request_record import RequestRecord
from tests.scheduler.admission.desk import PAGE, Desk
from tests.scheduler.admission.paper_life import submission


def full_desk(*, seats: int = 1, policy: AdmissionPolicy | None = None) -> Desk:
    """All seats are taken by requests of the highest priority."""
    desk = Desk(seats=seats, pages=500, policy=policy)
    for n in range(seats):
        assert desk.submit(f"running {n}", priority=2**31 - 1) == [f"admit running {n}"]
    return desk


def drain(desk: Desk, first: str) -> list[str]:
    """Let each one finish as soon as it has entered; the order in which they did."""
    entered, orders = [], desk.finished(first)
    while orders:
        assert len(orders) == 1
        entered.append(orders[0].removeprefix("admit "))
        orders = desk.finished(entered[-1])
    return entered


def test_an_idle_server_admits_at_once() -> None:
    assert Desk().submit("a") == ["admit a"]


def test_a_tier_is_served_in_order_of_arrival() -> None:
    desk = full_desk()
    for request_id in ("a", "b", "c", "d"):
        assert desk.submit(request_id) == []
    assert drain(desk, "running 0") == ["a", "b", "c", "d"]


def test_a_higher_priority_is_served_first_and_negative_ones_last() -> None:
    desk = full_desk()
    for request_id, priority in (("late", -5), ("normal", 0), ("urgent", 7), ("normal too", 0), ("urgent too", 7)):
        desk.submit(request_id, priority=priority)
    assert drain(desk, "running 0") == ["urgent", "urgent too", "normal", "normal too", "late"]


def test_the_head_of_the_queue_is_not_passed_by_a_smaller_one_behind_it() -> None:
    desk = Desk(pages=30)
    desk.submit("running", 10 * PAGE)
    assert desk.submit("big", 20 * PAGE) == []
    assert desk.submit("small", PAGE) == []
    assert desk.finished("running") == ["admit big", "admit small"]


def test_age_lifts_a_queued_request_over_younger_ones_of_higher_priority() -> None:
    """Case 4: ageing bounds the wait; here a gap of seven tiers is closed after three steps of 30 s."""
    desk = full_desk()
    desk.submit("old")
    desk.now = 89.0
    desk.submit("young", priority=7)
    desk.now = 90.0
    desk.submit("younger", priority=8)
    assert drain(desk, "running 0") == ["younger", "old", "young"]


def test_the_longest_wait_under_a_constant_stream_of_the_highest_priority_is_bounded() -> None:
    """Case 4, at the worst gap there is: 33 steps of age outrank any int32 priority."""
    desk = full_desk(policy=AdmissionPolicy(age_step_s=1.0))
    desk.submit("lowest", priority=-(2**31))
    served, running = 0, "running 0"
    while running != "lowest":
        served += 1
        assert served <= 34
        assert desk.submit(f"stream {served}", priority=2**31 - 1) == []
        desk.now += 1.0
        running = desk.finished(running)[0].removeprefix("admit ")
    assert served == 33


def test_a_deferred_request_goes_back_to_the_head_of_its_tier_with_its_age() -> None:
    """Case 2: nobody loses a place to one that came later."""
    desk = full_desk()
    for request_id in ("a", "b"):
        desk.submit(request_id)
    desk.now = 5.0
    assert desk.finished("running 0") == ["admit a"]
    desk.now = 6.0
    assert desk.deferred("a") == []
    row = desk.row("a")
    assert (row.state, row.parks, row.waited_s, row.group_id) == ("queued", 0, 6.0, None)
    assert desk.progress() == ["admit a"]
    assert desk.finished("a") == ["admit b"]


def test_a_deferred_request_never_goes_before_one_of_a_higher_tier() -> None:
    desk = full_desk()
    desk.submit("a")
    desk.finished("running 0")
    desk.submit("urgent", priority=1)
    assert desk.deferred("a") == []
    assert desk.progress() == ["admit urgent"]


def test_the_queue_counts_what_it_holds() -> None:
    queue = FreshQueue(AdmissionPolicy())
    records = [
        RequestRecord(submission=submission(str(n), prompt=n, priority=n % 3), seq=n, slot=n, since=0.0, num_tokens=n)
        for n in range(1, 10)
    ]
    for record in records:
        queue.add(record)
    assert (len(queue), queue.num_tokens) == (9, 45)
    queue.remove(records[3])
    assert (len(queue), queue.num_tokens) == (8, 41)
    assert {record.request_id for record in queue} == {str(n) for n in (1, 2, 3, 5, 6, 7, 8, 9)}


def test_an_event_with_thousands_queued_looks_at_one_head_a_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = full_desk()
    for n in range(3000):
        desk.core.submit(submission(f"r{n}", priority=n % 5), desk.now)
    looks = 0
    plain = RequestRecord.waiting_tier

    def counted(record: RequestRecord, policy: AdmissionPolicy, now: float) -> int:
        nonlocal looks
        looks += 1
        return plain(record, policy, now)

    monkeypatch.setattr(RequestRecord, "waiting_tier", counted)
    assert desk.progress() == []
    assert 0 < looks <= 20
