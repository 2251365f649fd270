"""The Ray actor round an engine: one a group, on the host of its ranks when links are Unix sockets."""

from collections.abc import Sequence
from typing import Any

import ray

from cluster.admission_desk import EngineWord
from cluster.cluster_spec import GroupSpec, TokenAddress
from cluster.engine_host import EngineHost
from cluster.placement import this_node_ip
from cluster.ray_executor import RayExecutor
from scheduler.messages import Command
from workers.link.endpoint import Endpoint


class EngineActor:
    """Async; `max_concurrency` must leave room for the calls that stay pending (`ended`)."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._host: EngineHost | None = None
        self._progress = "starting"

    async def start(self, admission: Any) -> TokenAddress:
        """Start the ranks, run the loop, register with admission. Raises CannotPlace, ExecutorFailed."""
        spec = self._spec
        executor = await RayExecutor.start(spec, self._note)

        async def tell(words: Sequence[EngineWord]) -> None:
            await admission.on_events.remote(spec.group_id, list(words))

        self._host = EngineHost(spec, executor, tell)
        endpoint = None if spec.links == "unix" else Endpoint(host=this_node_ip(), port=0)
        address = await self._host.start(endpoint)
        await admission.register.remote(spec.capacity, address, ray.get_runtime_context().current_actor)
        return address

    async def progress(self) -> str:
        """The last thing that was said of the start."""
        return self._progress

    async def commands(self, commands: Sequence[Command]) -> None:
        """From admission, one call at a time."""
        self._running().post(commands)

    async def probe(self) -> None:
        """Returns after the ranks have answered a step."""
        await self._running().probe()

    async def ended(self) -> str:
        """Pending while the engine works; then why it does not."""
        return await self._running().ended()

    async def stop(self) -> None:
        """End ranks and links. The process is the caller's to kill."""
        host, self._host = self._host, None
        if host is not None:
            await host.stop()

    def _note(self, text: str) -> None:
        self._progress = text

    def _running(self) -> EngineHost:
        if self._host is None:
            raise RuntimeError(f"the engine of {self._spec.group_id} is not running")
        return self._host
