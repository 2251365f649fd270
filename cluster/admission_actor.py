"""The Ray actor round admission: one a cluster, named and detached.

Refusals are returned as values: an error raised here would come out wrapped. Calls that wait (`park`, `unpark`,
`watch`) are bounded in time by the desk.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from cluster.actor_log import LogSpec, open_actor_log
from cluster.admission_desk import AdmissionDesk
from cluster.cluster_spec import TokenAddress
from cluster.engine_port import EngineOrder, EnginePort, EngineWord
from cluster.instruments import ADMISSION_INSTRUMENTS, TASKS
from cluster.metrics import MetricsPublisher, tasks_reading
from cluster.watch import WatchBatch
from scheduler.admission import (
    AdmissionPolicy,
    AdmissionRefused,
    GroupCapacity,
    HoldTerms,
    OrderRefused,
    RequestRow,
)
from scheduler.messages import Submission

log = logging.getLogger(__name__)

_TICK_S = 1.0

T = TypeVar("T")
Refusal = AdmissionRefused | OrderRefused


class AdmissionActor:
    """Called a handful of times a request, never for a step or a token."""

    def __init__(self, policy: AdmissionPolicy, log_spec: LogSpec | None = None) -> None:
        open_actor_log(log_spec)
        self._publisher = MetricsPublisher((*ADMISSION_INSTRUMENTS, TASKS))
        self._desk = AdmissionDesk(policy, publish=self._publisher.publish)
        self._ticking: asyncio.Task[None] | None = None

    # ---- engines

    async def register(self, capacity: GroupCapacity, address: TokenAddress, engine: Any) -> None:
        """An engine is ready; `engine` is its actor."""

        async def send(orders: Sequence[EngineOrder]) -> None:
            await engine.take_orders.remote(list(orders))

        async def probe() -> None:
            await engine.probe.remote()

        self._desk.register(capacity, EnginePort(address, send, probe))
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick(), name="admission tick")

    async def on_events(self, group_id: str, words: Sequence[EngineWord]) -> None:
        """From engines, one call at a time each."""
        self._desk.take_words(group_id, words)

    # ---- gateways

    async def check_room(self) -> Refusal | None:
        return _value(self._desk.check_room)

    async def submit(self, submission: Submission) -> Refusal | None:
        return _value(lambda: self._desk.submit(submission))

    async def cancel(self, request_id: str) -> None:
        self._desk.cancel(request_id)

    async def addresses(self) -> list[TokenAddress]:
        return self._desk.addresses

    # ---- orders from outside

    async def requests(self, owner: str | None) -> list[RequestRow]:
        return self._desk.orders.requests(owner)

    async def request(self, request_id: str, owner: str | None) -> RequestRow | Refusal:
        return _value(lambda: self._desk.orders.request(request_id, owner))

    async def end(self, request_id: str, owner: str | None) -> RequestRow | Refusal:
        return _value(lambda: self._desk.orders.end(request_id, owner))

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float) -> RequestRow | Refusal:
        return await _awaited(self._desk.orders.park(request_id, owner, terms, wait_s))

    async def unpark(self, request_id: str, owner: str | None, wait_s: float) -> RequestRow | Refusal:
        return await _awaited(self._desk.orders.unpark(request_id, owner, wait_s))

    async def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow | Refusal:
        return _value(lambda: self._desk.orders.set_priority(request_id, owner, priority))

    # ---- the cluster as a whole

    async def drain(self) -> None:
        self._desk.orders.drain()

    async def undrain(self) -> None:
        self._desk.orders.undrain()

    async def status(self) -> dict[str, Any]:
        """After a turn of every engine's loop."""
        return await self._desk.status()

    async def watch(self, after: int, wait_s: float) -> WatchBatch:
        return await self._desk.watch.wait(after, wait_s)

    async def check_integrity(self) -> None:
        self._desk.check_integrity()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self._desk.tick()
                self._desk.tell_gauges()
                self._publisher.publish([tasks_reading("admission")])
            except Exception:  # a fault of ours: without its clock admission would be worse off still
                log.exception("a tick of admission failed")


def _value(call: Callable[[], T]) -> T | Refusal:
    try:
        return call()
    except (AdmissionRefused, OrderRefused) as refusal:
        return refusal


async def _awaited(call: Awaitable[T]) -> T | Refusal:
    try:
        return await call
    except (AdmissionRefused, OrderRefused) as refusal:
        return refusal
