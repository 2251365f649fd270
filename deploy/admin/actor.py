"""The Ray actor round the admin server. It lives in the driver's charge, on the driver's node, and ends with it."""

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.actor_log import open_actor_log
from cluster.admission_client import AdmissionClient
from cluster.cluster_spec import namespace_of
from deploy.admin.server import AdminServer, AdminSpec

_ACTOR_NAME = "admin"
_OPEN_CALLS = 100


class AdminActor:
    """`start` once, then `stop`."""

    def __init__(self, spec: AdminSpec) -> None:
        """Raises ClusterNotFound and `BadToken`."""
        open_actor_log(spec.log)
        self._server = AdminServer(spec, AdmissionClient(spec.cluster_id))

    async def start(self) -> str:
        """HOST:PORT where it listens. Raises `CannotListen`."""
        return await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()


def launch_admin(spec: AdminSpec) -> Any:
    """A handle of the actor, for a cluster that is running. Keep it: the actor ends with its last handle."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return (
        ray.remote(AdminActor)
        .options(
            name=_ACTOR_NAME,
            namespace=namespace_of(spec.cluster_id),
            num_cpus=0,
            max_restarts=0,
            max_concurrency=_OPEN_CALLS,
            scheduling_strategy=here,
        )
        .remote(spec)
    )
