"""Readings into Ray's metrics, which stand in Ray's own Prometheus endpoint and dashboard. A few microseconds each;
nobody calls it for a token or a step as it runs."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ray.util import metrics

from cluster.instruments import GATEWAY_INSTRUMENTS, Instrument, Kind
from cluster.readings import Reading, tier_label

log = logging.getLogger(__name__)

_TELL_S = 1.0


class MetricsPublisher:
    """The instruments that one process tells. Needs a process that is connected to a Ray."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._open = {each.name: _OpenInstrument(each.labels, _open(each)) for each in instruments}

    def publish(self, readings: Iterable[Reading]) -> None:
        """What goes wrong with a reading is logged: whoever made it has more important things to do."""
        for reading in readings:
            try:
                instrument = self._open[reading.name]
                instrument.record(reading.value, dict(zip(instrument.labels, reading.labels, strict=True)))
            except Exception:
                log.exception("the metrics did not take %s", reading)


def tasks_reading(process: str) -> Reading:
    """The live tasks of the event loop that runs now, the caller's own included."""
    return Reading("parkade_tasks", len(asyncio.all_tasks()), (process,))


class GatewayMetrics:
    """What only a gateway sees. Made in the event loop whose tasks it counts, for as long as that runs."""

    def __init__(self) -> None:
        self._publisher = MetricsPublisher(GATEWAY_INSTRUMENTS)
        self._counting = asyncio.create_task(self._tell_tasks(), name="gateway figures")

    def first_token(self, priority: int, seconds: float) -> None:
        """Once a request: from its arrival at the gateway to its first token."""
        self._publisher.publish([Reading("parkade_time_to_first_token_seconds", seconds, (tier_label(priority),))])

    async def _tell_tasks(self) -> None:
        while True:
            self._publisher.publish([tasks_reading("gateway")])
            await asyncio.sleep(_TELL_S)


@dataclass(frozen=True, slots=True)
class _OpenInstrument:
    labels: tuple[str, ...]
    record: Callable[[float, dict[str, str]], Any]


def _open(instrument: Instrument) -> Callable[[float, dict[str, str]], Any]:
    name, text, labels = instrument.name, instrument.description, instrument.labels
    match instrument.kind:
        case Kind.COUNTER:
            return metrics.Counter(name, text, labels).inc
        case Kind.GAUGE:
            return metrics.Gauge(name, text, labels).set
        case Kind.HISTOGRAM:
            return metrics.Histogram(name, text, list(instrument.bounds), labels).observe
