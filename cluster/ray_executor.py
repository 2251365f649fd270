"""An executor whose ranks are Ray actors. Ray places and watches them; every step goes over the plan link."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cluster.cluster_spec import GroupSpec
from cluster.placement import rank_resources, reserve, this_node_ip
from cluster.rank_actor import RankActor
from cluster.ray_errors import ray_error_text
from scheduler.plan import CopyResult, StepPlan, StepResult
from workers.executors.rank_specs import new_collective_spec
from workers.link import LinkAddress, PlanLink
from workers.link.endpoint import Endpoint
from workers.spec import RankSpec

log = logging.getLogger(__name__)

_HANGUP_GRACE_S = 3.0
_RENDEZVOUS_TIMEOUT_S = 60.0


class RayExecutor:
    """Made by `start`, in the process of the engine: its ranks and their placement die with that process."""

    def __init__(self, link: PlanLink, reserved: PlacementGroup) -> None:
        self._link = link
        self._reserved = reserved
        self._actors: list[Any] = []
        self._watches: list[asyncio.Task[None]] = []
        self._stopped = False

    @classmethod
    async def start(cls, group: GroupSpec, on_progress: Callable[[str], None] = lambda _: None) -> "RayExecutor":
        """Place and start every rank and wait until all have loaded. Raises CannotPlace, ExecutorFailed."""
        node_ip = this_node_ip()
        on_progress("placing ranks")
        reserved = await reserve(group, node_ip)
        executor = cls(PlanLink(group.rank.world_size, step_timeout_s=group.step_timeout_s), reserved)
        try:
            await executor._start_ranks(group, node_ip)
            await executor._link.ready(group.ready_timeout_s, on_progress)
        except BaseException:
            await executor.stop()
            raise
        return executor

    def listen(self, on_copy: Callable[[CopyResult], None]) -> None:
        """Once, before the first plan that copies: who is called when a copy has ended on every rank."""
        self._link.listen(on_copy)

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        """Send `plan` to every rank. The future raises ExecutorFailed."""
        return self._link.submit(plan)

    async def stop(self) -> None:
        """Hang up, then end every actor and the placement. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._link.close()
        if self._watches:
            await asyncio.wait(self._watches, timeout=_HANGUP_GRACE_S)
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        remove_placement_group(self._reserved)
        for watch in self._watches:
            watch.cancel()

    async def _start_ranks(self, group: GroupSpec, node_ip: str) -> None:
        endpoint = await self._link.open(None if group.links == "unix" else Endpoint(host=node_ip, port=0))
        needs = rank_resources(group)
        for rank in range(group.rank.world_size):
            where = PlacementGroupSchedulingStrategy(self._reserved, placement_group_bundle_index=rank)
            options = {"num_cpus": needs["CPU"], "num_gpus": needs.get("GPU", 0), "max_restarts": 0}
            self._actors.append(ray.remote(RankActor).options(scheduling_strategy=where, **options).remote())
        for spec in await self._specs(group):
            address = LinkAddress(endpoint=endpoint, token=self._link.token, rank=spec.rank)
            call = self._actors[spec.rank].serve.remote(spec, address, group.log)
            self._watches.append(asyncio.create_task(self._watch(spec.rank, call), name=f"rank {spec.rank}"))

    async def _specs(self, group: GroupSpec) -> Sequence[RankSpec]:
        asked = group.rank.collective
        if asked.kind in ("gloo", "nccl"):  # found over rank 0's node
            call = self._actors[0].rendezvous.remote(asked.kind, asked.timeout_s)
            collective = await asyncio.wait_for(call, _RENDEZVOUS_TIMEOUT_S)
        else:
            collective = new_collective_spec(asked.kind, timeout_s=asked.timeout_s)
        return [replace(group.rank, rank=rank, collective=collective) for rank in range(group.rank.world_size)]

    async def _watch(self, rank: int, call: Any) -> None:
        try:
            await call
        except ray.exceptions.RayError as error:
            self._link.fail(f"rank {rank} has ended: {ray_error_text(error)}")
