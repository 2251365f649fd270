"""The Ray actor round an engine: one a group, on the host of its ranks when links are Unix sockets."""

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from cluster.actor_log import open_actor_log
from cluster.cluster_spec import GroupSpec, TokenAddress
from cluster.engine_host import EngineHost
from cluster.engine_port import EngineOrder, EngineWord
from cluster.errors import ClusterFailed
from cluster.instruments import ENGINE_INSTRUMENTS, TASKS
from cluster.metrics import MetricsPublisher, tasks_reading
from cluster.placement import this_node_ip
from cluster.ray_errors import ray_error_text
from cluster.ray_executor import RayExecutor
from workers.link.endpoint import Endpoint

_TELL_S = 1.0
# Between so many readings the engine's loop may turn: a second's worth of steps at once would hold it up.
_READINGS_AT_ONCE = 32


class EngineActor:
    """Async; `max_concurrency` must leave room for the calls that stay pending (`ended`)."""

    def __init__(self, spec: GroupSpec) -> None:
        open_actor_log(spec.log)
        self._spec = spec
        self._telling: asyncio.Task[None] | None = None
        self._host: EngineHost | None = None
        self._progress = "starting"

    async def start(self, admission: Any) -> TokenAddress:
        """Start the ranks, run the loop, register with admission. Raises CannotPlace, ExecutorFailed."""
        spec = self._spec
        executor = await RayExecutor.start(spec, self._note)

        async def tell(words: Sequence[EngineWord]) -> None:
            try:
                await admission.on_events.remote(spec.group_id, list(words))
            except RayError as error:
                raise ClusterFailed(ray_error_text(error)) from error

        self._host = EngineHost(spec, executor, tell)
        endpoint = None if spec.links == "unix" else Endpoint(host=this_node_ip(), port=0)
        address = await self._host.start(endpoint)
        self._telling = asyncio.create_task(self._tell_figures(self._host), name="engine figures")
        await admission.register.remote(spec.capacity, address, ray.get_runtime_context().current_actor)
        return address

    async def progress(self) -> str:
        """The last thing that was said of the start."""
        return self._progress

    async def take_orders(self, orders: Sequence[EngineOrder]) -> None:
        """From admission, one call at a time."""
        self._running().post(orders)

    async def probe(self) -> None:
        """Returns after the ranks have answered a step, or while they are long at one."""
        await self._running().probe()

    async def ended(self) -> str:
        """Pending while the engine works; then why it does not."""
        return await self._running().ended()

    async def stop(self) -> None:
        """End ranks and links. The process is the caller's to kill."""
        if self._telling is not None:
            self._telling.cancel()
        host, self._host = self._host, None
        if host is not None:
            await host.stop()

    async def _tell_figures(self, host: EngineHost) -> None:
        publisher = MetricsPublisher((*ENGINE_INSTRUMENTS, TASKS))
        while True:
            await asyncio.sleep(_TELL_S)
            readings = [tasks_reading(f"engine {self._spec.group_id}"), *host.figures.take()]
            for first in range(0, len(readings), _READINGS_AT_ONCE):
                publisher.publish(readings[first : first + _READINGS_AT_ONCE])
                await asyncio.sleep(0)

    def _note(self, text: str) -> None:
        self._progress = text

    def _running(self) -> EngineHost:
        if self._host is None:
            raise RuntimeError(f"the engine of {self._spec.group_id} is not running")
        return self._host
