"""Admission as a gateway and the admin see it.

`owner` in these calls says who asks: "" when nobody is told apart, a key's name or else its digest, or None for the
admin, who sees all. Another owner's request is unknown. Raised: `AdmissionRefused` (a submission did not get in),
`OrderRefused` (`UnknownRequest`, `WrongState`: an order that changes nothing), `ClusterError` (admission is lost).
"""

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from cluster.cluster_spec import ADMISSION_NAME, TokenAddress, namespace_of
from cluster.errors import ClusterFailed, ClusterNotFound
from cluster.ray_errors import ray_error_text
from cluster.watch import WatchBatch
from scheduler.admission import AdmissionRefused, HoldTerms, OrderRefused, RequestRow
from scheduler.messages import Submission


class AdmissionClient:
    """Needs a process that is connected to the cluster's Ray. One Ray call a method."""

    def __init__(self, cluster_id: str) -> None:
        """Raises ClusterNotFound."""
        try:
            self._actor: Any = ray.get_actor(ADMISSION_NAME, namespace=namespace_of(cluster_id))
        except ValueError as error:
            raise ClusterNotFound(f"cluster {cluster_id} has no admission actor on this Ray") from error

    # ---- a gateway's own requests

    async def check_room(self) -> None:
        """Before anything is tokenized. Raises AdmissionRefused when no request would be taken now."""
        await self._ask(self._actor.check_room)

    async def submit(self, submission: Submission) -> None:
        """Return once the request is taken. Raises AdmissionRefused: then nothing of it is kept."""
        await self._ask(self._actor.submit, submission)

    async def cancel(self, request_id: str) -> None:
        """For the gateway that submitted it: nobody reads it any more. Idempotent; an unknown id is a no-op."""
        await self._ask(self._actor.cancel, request_id)

    async def addresses(self) -> list[TokenAddress]:
        """Where to fetch tokens: connect to each before the first submission."""
        addresses: list[TokenAddress] = await self._ask(self._actor.addresses)
        return addresses

    # ---- orders from outside

    async def requests(self, owner: str | None) -> list[RequestRow]:
        """The owner's living requests, in order of arrival."""
        rows: list[RequestRow] = await self._ask(self._actor.requests, owner)
        return rows

    async def request(self, request_id: str, owner: str | None) -> RequestRow:
        """Raises UnknownRequest."""
        return await self._row(self._actor.request, request_id, owner)

    async def end(self, request_id: str, owner: str | None) -> RequestRow:
        """Cancel it; its stream ends with the finish reason "cancelled". The row shows it as `cancelling`."""
        return await self._row(self._actor.end, request_id, owner)

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float = 5.0) -> RequestRow:
        """Hold it until `unpark`. Returns when its pages and seat are free, or as "parking" after `wait_s`,
        at most 60.

        Idempotent: of one that is held only the terms are replaced. Raises UnknownRequest, and WrongState when it
        could not be parked: it runs on then.
        """
        return await self._row(self._actor.park, request_id, owner, terms, wait_s)

    async def unpark(self, request_id: str, owner: str | None, wait_s: float = 0.0) -> RequestRow:
        """Put it back in line; a no-op for one that is not held. Returns when it runs, or after `wait_s` as it is."""
        return await self._row(self._actor.unpark, request_id, owner, wait_s)

    async def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow:
        """In every state, at once."""
        return await self._row(self._actor.set_priority, request_id, owner, priority)

    # ---- the cluster as a whole

    async def drain(self) -> None:
        """Refuse new requests with `Draining`; those that live go on. Idempotent."""
        await self._ask(self._actor.drain)

    async def undrain(self) -> None:
        """Idempotent."""
        await self._ask(self._actor.undrain)

    async def status(self) -> Mapping[str, Any]:
        """`AdmissionStatus` as a dict, after a turn of every engine's loop."""
        status: Mapping[str, Any] = await self._ask(self._actor.status)
        return status

    async def watch(self, after: int, wait_s: float) -> WatchBatch:
        """Events from number `after` on: begin with -1 (from now) or 0 (all that is kept), go on with `batch.next`.

        Returns as soon as there are any, or empty after `wait_s`, at most 30.
        """
        batch: WatchBatch = await self._ask(self._actor.watch, after, wait_s)
        return batch

    async def _row(self, method: Any, *args: Any) -> RequestRow:
        row: RequestRow = await self._ask(method, *args)
        return row

    async def _ask(self, method: Any, *args: Any) -> Any:
        """Refusals come as values: an error raised over there would come out wrapped."""
        try:
            answer = await method.remote(*args)
        except RayError as error:
            raise ClusterFailed(f"admission is lost: {ray_error_text(error)}") from error
        if isinstance(answer, AdmissionRefused | OrderRefused):
            raise answer
        return answer
