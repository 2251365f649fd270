"""Gauges at rest and not: every book that is open is named, and the report holds each of them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak.gauges import (
    Gauges,
    arena_files,
    book_problems,
    count_fds,
    count_threads,
    metric_problems,
    read_metrics,
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
)


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
ray_parkade_parks_total{WorkerId="a",tier="0"} 7.0
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


def whole() -> Visit:
    visit = Visit(errand(), texts={0: "a"}, finishes={0: "length"}, usage={"completion_tokens": 9, "parks": 2})
    visit.judge()
    return visit


def result(**changes: object) -> SoakResult:
    good = SoakResult(visits=[whole()], before=GAUGES, after=GAUGES, wall_s=9.0, rest_s=1.0, contradictions=[])
    return replace(good, **changes)


def test_a_good_soak_holds() -> None:
    assert make_report({}, result()).held


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"visits": [whole(), Visit(errand(), fault="x")]}, "requests that ended as they must not"),
        ({"contradictions": ["x"]}, "texts that contradict another"),
        ({"visits": []}, "parks"),
        ({"after": replace(GAUGES, books=("x",))}, "gauges that are not at rest"),
        ({"after": replace(GAUGES, metrics={})}, "gauges of the metrics page"),
        ({"after": replace(GAUGES, metrics={"parkade_queued_tokens": 4.0})}, "of these, not at rest"),
        ({"after": replace(GAUGES, arena_bytes=8193)}, "growth of arena memory in /dev/shm, bytes"),
        ({"after": replace(GAUGES, num_arenas=3)}, "arena segments more than before"),
        ({"after": replace(GAUGES, num_fds=317)}, "file descriptors more than before"),
        ({"after": replace(GAUGES, num_threads=107)}, "threads more than before"),
    ],
)
def test_each_thing_that_is_left_misses_its_own_bar(changes: dict[str, object], missed: str) -> None:
    report = make_report({}, result(**changes))
    assert [bar.name for bar in report.bars if not bar.held] == [missed]
