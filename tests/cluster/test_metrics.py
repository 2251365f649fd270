"""Readings reach the instrument of their name, each in its own way, and a bad one harms nobody."""

import asyncio
import logging
from typing import Any

import pytest
from ray.util import metrics

from cluster import metrics as cluster_metrics
from cluster.instruments import Instrument, Kind
from cluster.metrics import GatewayMetrics, MetricsPublisher, tasks_reading
from cluster.readings import Reading

Calls = list[tuple[str, float, dict[str, str]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What Ray's instruments were told: name and verb, value, labels."""
    seen: Calls = []
    for kind, verb in (("Counter", "inc"), ("Gauge", "set"), ("Histogram", "observe")):

        def record(self: Any, value: float, tags: dict[str, str], verb: str = verb) -> None:
            seen.append((f"{self.info['name']}.{verb}", value, tags))

        monkeypatch.setattr(getattr(metrics, kind), verb, record)
    return seen


INSTRUMENTS = (
    Instrument(Kind.COUNTER, "parkade_test_counter", ("a", "b"), "one"),
    Instrument(Kind.GAUGE, "parkade_test_gauge", (), "two"),
    Instrument(Kind.HISTOGRAM, "parkade_test_histogram", ("a",), "three", (1.0, 2.0)),
)


def test_a_counter_is_added_to_a_gauge_set_and_a_histogram_observed(calls: Calls) -> None:
    MetricsPublisher(INSTRUMENTS).publish(
        [
            Reading("parkade_test_counter", 2, ("x", "y")),
            Reading("parkade_test_gauge", 0),
            Reading("parkade_test_histogram", 0.5, ("z",)),
        ]
    )
    assert calls == [
        ("parkade_test_counter.inc", 2, {"a": "x", "b": "y"}),
        ("parkade_test_gauge.set", 0, {}),
        ("parkade_test_histogram.observe", 0.5, {"a": "z"}),
    ]


def test_a_reading_that_is_refused_is_logged_and_the_next_one_counts(
    calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [Reading("unknown", 1), Reading("parkade_test_counter", 1, ("too few",))]
    with caplog.at_level(logging.ERROR, logger="cluster.metrics"):
        MetricsPublisher(INSTRUMENTS).publish([*bad, Reading("parkade_test_gauge", 7)])
    assert caplog.messages == [f"the metrics did not take {reading}" for reading in bad]
    assert calls == [("parkade_test_gauge.set", 7, {})]


async def test_a_gateway_tells_the_time_to_the_first_token_by_tier(calls: Calls) -> None:
    gateway = GatewayMetrics()
    gateway.first_token(3, 0.25)
    gateway.first_token(1_000_000, 0.5)
    await stopped(gateway)
    assert calls == [
        ("parkade_time_to_first_token_seconds.observe", 0.25, {"tier": "3"}),
        ("parkade_time_to_first_token_seconds.observe", 0.5, {"tier": ">10"}),
    ]


async def stopped(gateway: GatewayMetrics) -> None:
    gateway._counting.cancel()
    await asyncio.wait([gateway._counting])


async def test_live_tasks_are_counted_and_those_that_ended_are_not() -> None:
    idle = tasks_reading("p")
    assert (idle.name, idle.labels) == ("parkade_tasks", ("p",))
    go = asyncio.Event()
    tasks = [asyncio.create_task(go.wait()) for _ in range(3)]
    assert tasks_reading("p").value == idle.value + 3
    go.set()
    await asyncio.gather(*tasks)
    assert tasks_reading("p") == idle


async def test_a_gateway_counts_its_tasks_again_and_again(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metrics, "_TELL_S", 0.0)
    told, second = [], asyncio.Event()

    def reading(process: str) -> Reading:
        told.append(tasks_reading(process))
        if len(told) == 2:
            second.set()
        return told[-1]

    monkeypatch.setattr(cluster_metrics, "tasks_reading", reading)
    gateway = GatewayMetrics()
    async with asyncio.timeout(5):
        await second.wait()
    await stopped(gateway)
    assert calls[:2] == [("parkade_tasks.set", each.value, {"process": "gateway"}) for each in told[:2]]
