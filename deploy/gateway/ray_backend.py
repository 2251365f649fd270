"""The `Backend` of a real server: admission by calls, tokens by one open connection to each engine. No Ray in here:
`cluster`'s clients fit what it asks for."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from typing import Any, Protocol

from cluster.errors import ClusterError
from deploy.errors import BackendLost
from deploy.gateway.token_pump import TokenPump
from scheduler.messages import Submission, TokenEvent

logger = logging.getLogger(__name__)


class AdmissionLink(Protocol):
    """What is asked of admission. Refusals are `AdmissionRefused`; a `ClusterError` means that it is lost."""

    async def submit(self, submission: Submission) -> None: ...

    async def cancel(self, request_id: str) -> None: ...

    async def status(self) -> Mapping[str, Any]: ...


class RayBackend:
    """Call `start` inside the running event loop, `stop` at the end. `connections` maps an engine to its batches."""

    def __init__(
        self, gateway_id: str, admission: AdmissionLink, connections: Mapping[str, AsyncIterable[Sequence[TokenEvent]]]
    ) -> None:
        self.gateway_id = gateway_id
        self._admission = admission
        self._connections = connections
        self._pump = TokenPump()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def num_open(self) -> int:
        """Requests submitted and not yet ended or cancelled."""
        return self._pump.num_open

    def start(self) -> None:
        self._tasks = [
            asyncio.get_running_loop().create_task(self._pump.run(name, batches), name=f"tokens of {name}")
            for name, batches in self._connections.items()
        ]

    async def stop(self) -> None:
        """Ends the connections; requests that are still open end with an error."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def submit(self, submission: Submission) -> None:
        if not any(not task.done() for task in self._tasks):
            raise BackendLost("no engine is connected")
        self._pump.open(submission.request_id)  # before it can have events
        try:
            await self._admission.submit(submission)
        except ClusterError as error:
            self._pump.close(submission.request_id)
            raise _lost(error) from error
        except BaseException:
            self._pump.close(submission.request_id)
            raise

    def events(self, request_id: str) -> AsyncGenerator[Sequence[TokenEvent], None]:
        return self._pump.events(request_id)

    async def cancel(self, request_id: str) -> None:
        self._pump.close(request_id)
        await self._admission.cancel(request_id)

    async def status(self) -> Mapping[str, Any]:
        if not any(not task.done() for task in self._tasks):
            raise BackendLost("no engine is connected")
        try:
            return _without_ids(await self._admission.status())
        except ClusterError as error:
            raise _lost(error) from error


def _lost(error: ClusterError) -> BackendLost:
    """The detail is for the log: it speaks of processes and machines."""
    logger.warning("%s", error)
    return BackendLost("the scheduler behind this gateway does not answer")


def _without_ids(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whoever may ask for health should not learn the ids of others' requests."""
    return {
        **status,
        "requests": [_without(row, "request_id") for row in status["requests"]],
        "groups": [_without(row, "survivor_id") for row in status["groups"]],
    }


def _without(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}
