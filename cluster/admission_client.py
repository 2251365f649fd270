"""Admission as a gateway sees it. Refusals are `AdmissionRefused`; a `ClusterError` means that it is lost."""

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from cluster.cluster_spec import ADMISSION_NAME, TokenAddress, namespace_of
from cluster.errors import ClusterFailed, ClusterNotFound
from cluster.ray_errors import ray_error_text
from scheduler.messages import Submission


class AdmissionClient:
    """Needs a process that is connected to the cluster's Ray. One Ray call a method."""

    def __init__(self, cluster_id: str) -> None:
        """Raises ClusterNotFound."""
        try:
            self._actor: Any = ray.get_actor(ADMISSION_NAME, namespace=namespace_of(cluster_id))
        except ValueError as error:
            raise ClusterNotFound(f"cluster {cluster_id} has no admission actor on this Ray") from error

    async def submit(self, submission: Submission) -> None:
        """Return once the request is taken. Raises AdmissionRefused: then nothing of it is kept."""
        refusal = await self._call(self._actor.submit, submission)
        if refusal is not None:
            raise refusal

    async def cancel(self, request_id: str) -> None:
        """Idempotent; an unknown id is a no-op."""
        await self._call(self._actor.cancel, request_id)

    async def status(self) -> Mapping[str, Any]:
        """Pool, queue and requests, after a turn of every engine's loop."""
        status: Mapping[str, Any] = await self._call(self._actor.status)
        return status

    async def addresses(self) -> list[TokenAddress]:
        """Where to fetch tokens: connect to each before the first submission."""
        addresses: list[TokenAddress] = await self._call(self._actor.addresses)
        return addresses

    async def _call(self, method: Any, *args: Any) -> Any:
        try:
            return await method.remote(*args)
        except RayError as error:
            raise ClusterFailed(f"admission is lost: {ray_error_text(error)}") from error
