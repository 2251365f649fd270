"""Gauges at rest and not: every book that is open is named, and the report holds each of them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak.command import is_at_rest
from bench.soak.errand import Fate, Order
from bench.soak.gauges import (
    Gauges,
    arena_files,
    book_problems,
    count_fds,
    count_threads,
    metric_problems,
    read_explicit_parks,
    read_metrics,
    read_tasks,
    resident,
)
from bench.soak.report import SoakResult, make_report
from bench.soak.visitor import Visit
from tests.bench.soak.test_errands import errand

GROUP = {
    "group_id": "g0",
    "pages_total": 9,
    "pages_free": 9,
    "arena_total": 5,
    "arena_free": 5,
    "seats": 4,
    "seats_free": 4,
    "parked": 0,
    "shortfall": 0,
    "commands_given": 70,
    "commands_done": 70,
}
REST = {"groups": [GROUP], "queued_requests": 0, "queued_tokens": 0}
GAUGES = Gauges(
    books=(),
    arena_bytes=8192,
    num_arenas=2,
    num_fds=300,
    num_threads=90,
    resident_mib=900.0,
    metrics={"parkade_queued_tokens": 0.0},
    tasks={"gateway": 9.0, "admission": 6.0, "engine g0": 7.0},
    explicit_parks=3.0,
)
AFTER = replace(GAUGES, resident_mib=950.0, explicit_parks=90.0)


def test_a_server_at_rest_has_no_problem() -> None:
    assert book_problems(REST, []) == ()


@pytest.mark.parametrize(
    ("health", "living", "problem"),
    [
        ({"queued_requests": 1}, [], "queued_requests is 1"),
        ({"groups": [GROUP | {"pages_free": 8}]}, [], "g0: pages_free is 8 of 9"),
        ({"groups": [GROUP | {"arena_free": 4}]}, [], "g0: arena_free is 4 of 5"),
        ({"groups": [GROUP | {"seats_free": 3}]}, [], "g0: seats_free is 3 of 4"),
        ({"groups": [GROUP | {"parked": 1}]}, [], "g0: parked is 1"),
        ({"groups": [GROUP | {"shortfall": 2}]}, [], "g0: shortfall is 2"),
        ({"groups": [GROUP | {"commands_done": 69}]}, [], "g0: 69 of 70 commands done"),
        ({}, [{"id": "r", "state": "parked"}], "request r is parked"),
    ],
)
def test_whatever_is_not_at_rest_is_named(
    health: dict[str, object], living: list[dict[str, str]], problem: str
) -> None:
    assert book_problems(REST | health, living) == (problem,)


def test_files_and_processes_are_counted(tmp_path: Path) -> None:
    for name in ("parkade-arena-b-1", "parkade-arena-a-0", "parkade-budget-x", "other"):
        (tmp_path / name).touch()
    assert [path.name for path in arena_files(tmp_path)] == ["parkade-arena-a-0", "parkade-arena-b-1"]
    assert count_fds(os.getpid()) >= 3
    assert count_threads(os.getpid()) >= 1
    assert resident(os.getpid()) > 1
    assert (count_fds(7, tmp_path), count_threads(7, tmp_path), resident(7, tmp_path)) == (0, 0, 0.0)


PAGE = """
# HELP ray_parkade_requests Living requests.
ray_parkade_requests{Component="core_worker",WorkerId="a",otel_scope_version="",state="held",tier="-1"} 2.0
ray_parkade_requests{Component="core_worker",WorkerId="b",otel_scope_version="",state="held",tier="-1"} 1.0
ray_parkade_pages{WorkerId="a",group="g0",state="free"} 9.0
ray_parkade_pages{WorkerId="a",group="g0",state="used"} 0.0
ray_parkade_queued_tokens{WorkerId="a"} 0.0
ray_parkade_parks_total{WorkerId="a",mode="copy",reason="pressure",tier="0"} 7.0
ray_parkade_parks_total{WorkerId="a",mode="copy",reason="explicit",tier="0"} 4.0
ray_parkade_parks_total{WorkerId="a",mode="recompute",reason="explicit",tier="5"} 1.0
ray_parkade_tasks{WorkerId="a",process="admission"} 6.0
ray_parkade_tasks{WorkerId="b",process="gateway"} 9.0
ray_parkade_tasks{WorkerId="c",process="gateway"} 10.0
ray_parkade_tasks{WorkerId="d",process="engine g0"} 7.0
python_info{x="1"} 1.0
"""


def test_the_metrics_page_is_read_by_name_and_our_labels_and_counters_are_left_out() -> None:
    metrics = read_metrics(PAGE)
    assert metrics == {
        "parkade_requests{state=held,tier=-1}": 3.0,
        "parkade_pages{group=g0,state=free}": 9.0,
        "parkade_pages{group=g0,state=used}": 0.0,
        "parkade_queued_tokens": 0.0,
    }
    assert metric_problems(metrics) == ["parkade_requests{state=held,tier=-1} is 3"]


def test_tasks_are_read_by_process_and_explicit_parks_of_every_kind_together() -> None:
    assert read_tasks(PAGE) == {"admission": 6.0, "gateway": 19.0, "engine g0": 7.0}
    assert read_explicit_parks(PAGE) == 5.0
    assert (read_tasks(""), read_explicit_parks("")) == ({}, 0.0)


def whole() -> Visit:
    visit = Visit(errand(), texts={0: "a"}, finishes={0: "length"}, usage={"completion_tokens": 9, "parks": 2})
    visit.judge()
    return visit


def steered(fate: Fate, *orders: Order, code: int = 200) -> Visit:
    visit = Visit(replace(errand(), fate=fate), answers=[(order, code) for order in orders])
    if fate in (Fate.CANCEL, Fate.PARK_THEN_CANCEL) and code == 200:
        visit.error = "request_cancelled"
    visit.left = fate is Fate.DISCONNECT
    return visit


ORDERS = {
    Fate.PARK: (Order.PARK, Order.UNPARK),
    Fate.PARK_THEN_UNPARK: (Order.PARK_THEN_UNPARK,),
    Fate.PARK_THEN_CANCEL: (Order.PARK_THEN_CANCEL,),
    Fate.CANCEL: (Order.CANCEL,),
    Fate.PRIORITY: (Order.PRIORITY,),
    Fate.DISCONNECT: (),
}


def visits(refused: Fate | None = None, code: int = 409) -> list[Visit]:
    """One of each fate; the orders of one of them are refused, as if they had come too late."""
    each = [steered(fate, *orders, code=code if fate is refused else 200) for fate, orders in ORDERS.items()]
    return [whole(), *each]


def result(**changes: object) -> SoakResult:
    good = SoakResult(visits=visits(), before=GAUGES, after=AFTER, wall_s=9.0, rest_s=1.0, contradictions=[])
    return replace(good, **changes)


def missed(soak: SoakResult) -> list[str]:
    return [bar.name for bar in make_report({}, soak).bars if not bar.held]


def test_a_good_soak_holds() -> None:
    assert missed(result()) == []


@pytest.mark.parametrize(
    ("changes", "bar"),
    [
        ({"visits": [*visits(), Visit(errand(), fault="x")]}, "requests that ended as they must not"),
        ({"contradictions": ["x"]}, "texts that contradict another"),
        ({"visits": visits()[1:]}, "parks"),
        ({"visits": [each for each in visits() if not each.left]}, "clients that hung up"),
        ({"after": replace(AFTER, books=("x",))}, "gauges that are not at rest"),
        ({"after": replace(AFTER, metrics={})}, "gauges of the metrics page"),
        ({"after": replace(AFTER, metrics={"parkade_queued_tokens": 4.0})}, "of these, not at rest"),
        ({"after": replace(AFTER, arena_bytes=8193)}, "growth of arena memory in /dev/shm, bytes"),
        ({"after": replace(AFTER, num_arenas=3)}, "arena segments more than before"),
        ({"after": replace(AFTER, num_fds=317)}, "file descriptors more than before"),
        ({"after": replace(AFTER, num_threads=107)}, "threads more than before"),
        ({"after": replace(AFTER, resident_mib=9 * 900.0)}, "resident memory over that before"),
        ({"after": replace(AFTER, resident_mib=1200.0)}, "resident memory over that before"),
        ({"after": replace(AFTER, explicit_parks=3.0)}, "explicit parks on the metrics page"),
        ({"after": replace(AFTER, tasks=AFTER.tasks | {"gateway": 10.0})}, "asyncio tasks more than before, gateway"),
        (
            {"after": replace(AFTER, tasks=AFTER.tasks | {"engine g0": 8.0})},
            "asyncio tasks more than before, engine g0",
        ),
        ({"after": replace(AFTER, tasks={"gateway": 9.0, "engine g0": 7.0})}, "processes that tell their tasks"),
        (
            {"before": replace(GAUGES, tasks={}), "after": replace(AFTER, tasks={})},
            "processes that tell their tasks",
        ),
    ],
)
def test_each_thing_that_is_left_misses_its_own_bar(changes: dict[str, object], bar: str) -> None:
    assert missed(result(**changes)) == [bar]


@pytest.mark.parametrize("code", [404, 409])
@pytest.mark.parametrize("fate", [fate for fate, orders in ORDERS.items() if orders])
def test_orders_of_a_kind_that_are_all_refused_miss_their_bars(fate: Fate, code: int) -> None:
    named = [f"orders answered with 200: {order}" for order in ORDERS[fate]]
    ended = [f"requests that ended as cancelled: {fate}"] if "cancel" in fate else []
    assert missed(result(visits=visits(fate, code))) == [*named, *ended]


def test_a_cancel_that_is_answered_and_not_done_misses_its_bar() -> None:
    some = visits()
    for visit in some:
        if visit.errand.fate is Fate.CANCEL:
            visit.error = None
    assert missed(result(visits=some)) == ["requests that ended as cancelled: cancel"]


def test_a_server_rests_when_no_task_and_no_memory_is_more_than_before() -> None:
    assert is_at_rest(GAUGES, None)
    assert is_at_rest(AFTER, GAUGES)
    assert is_at_rest(replace(AFTER, tasks=AFTER.tasks | {"gateway": 8.0}), GAUGES)
    for changes in (
        {"books": ("x",)},
        {"metrics": {"parkade_queued_tokens": 1.0}},
        {"tasks": AFTER.tasks | {"admission": 7.0}},
        {"tasks": {}},
        {"arena_bytes": 8193},
    ):
        assert not is_at_rest(replace(AFTER, **changes), GAUGES)
