"""The actor's own clock, without Ray: it goes on whatever a tick comes to."""

import asyncio
import logging
from typing import Any, cast

import pytest

from cluster import admission_actor
from cluster.admission_actor import AdmissionActor
from cluster.cluster_spec import TokenAddress
from scheduler.admission import AdmissionPolicy, GroupCapacity


async def test_a_tick_that_fails_is_logged_and_the_next_one_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admission_actor, "_TICK_S", 0.0)
    monkeypatch.setattr(admission_actor, "MetricsPublisher", lambda _: cast(Any, _Nowhere()))
    actor = AdmissionActor(AdmissionPolicy())
    capacity = GroupCapacity(group_id="g", num_pages=4, page_size=16, seats=1, max_model_len=64)
    await actor.register(capacity, TokenAddress(group_id="g", endpoint="unix:/x", token="t"), engine=None)
    ticks, second = [], asyncio.Event()

    def fail_once() -> None:
        ticks.append(len(ticks))
        if len(ticks) == 1:
            raise KeyError("a fault")
        second.set()

    with caplog.at_level(logging.ERROR, logger="cluster.admission_actor"):
        monkeypatch.setattr(actor._desk, "tick", fail_once)
        async with asyncio.timeout(5):
            await second.wait()
    assert caplog.messages == ["a tick of admission failed"]
    assert actor._ticking is not None
    actor._ticking.cancel()
    await asyncio.wait([actor._ticking])


class _Nowhere:
    def publish(self, _: object) -> None:
        """Nothing."""
