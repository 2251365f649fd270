"""The `Backend` of a real server: admission by calls, tokens by one open connection to each engine. No Ray in here:
`cluster`'s clients fit what it asks for."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from cluster.errors import ClusterError
from deploy.errors import BackendLost
from deploy.gateway.backend import Orders
from deploy.gateway.token_pump import ENDING_S, TokenPump
from scheduler.admission import AdmissionRefused, HoldTerms, RequestRow, UnknownRequest
from scheduler.messages import Submission, TokenEvent

logger = logging.getLogger(__name__)
AnswerT = TypeVar("AnswerT")
_FIRST_PAUSE_S = 0.01


class AdmissionLink(Orders, Protocol):
    """What is asked of admission. Refusals are `AdmissionRefused` and `OrderRefused`; a `ClusterError` means that it is
    lost."""

    async def check_room(self) -> None: ...

    async def submit(self, submission: Submission) -> None: ...

    async def cancel(self, request_id: str) -> None: ...

    async def status(self) -> Mapping[str, Any]: ...


class RayBackend:
    """Call `start` inside the running event loop, `stop` at the end. `connections` maps an engine to its batches.

    A client that sends its next request under the id of its last one as soon as that has ended is made to wait for
    `ending_s` at most: engine and admission need a moment more than the stream.
    """

    def __init__(
        self,
        gateway_id: str,
        admission: AdmissionLink,
        connections: Mapping[str, AsyncIterable[Sequence[TokenEvent]]],
        ending_s: float = ENDING_S,
    ) -> None:
        self._ending_s = ending_s
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

    # ---- the gateway's own requests

    async def check_room(self) -> None:
        self._require_engine()
        await _answer(self._admission.check_room())

    async def submit(self, submission: Submission) -> None:
        self._require_engine()
        request_id = submission.request_id
        if self._pump.is_ending(request_id):
            await self._until_ended(request_id)
        self._pump.open(request_id, submission.n)  # before it can have events
        try:
            await _answer(self._admission.submit(submission))
        except BaseException as error:
            self._pump.close(request_id, was_refused=isinstance(error, AdmissionRefused))
            raise

    async def _until_ended(self, request_id: str) -> None:
        """Until no engine may send anything more about it, and admission has forgotten it, or it is too late."""
        loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
        deadline = loop.time() + self._ending_s
        while self._pump.is_ending(request_id) and loop.time() < deadline:
            if not self._pump.knows(request_id) and not await self._lives(request_id):
                return
            await asyncio.sleep(pause_s)
            pause_s *= 2

    async def _lives(self, request_id: str) -> bool:
        try:
            await self.request(request_id, None)
        except UnknownRequest:
            return False
        return True

    def events(self, request_id: str, idle_s: float | None) -> AsyncGenerator[Sequence[TokenEvent], None]:
        return self._pump.events(request_id, idle_s)

    async def cancel(self, request_id: str) -> None:
        if self._pump.knows(request_id):  # else it has ended, or the id is of another gateway's request
            self._pump.close(request_id)
            await self._admission.cancel(request_id)

    async def status(self) -> Mapping[str, Any]:
        self._require_engine()
        return _sums_only(await _answer(self._admission.status()))

    # ---- orders

    async def requests(self, owner: str | None) -> list[RequestRow]:
        return await _answer(self._admission.requests(owner))

    async def request(self, request_id: str, owner: str | None) -> RequestRow:
        return await _answer(self._admission.request(request_id, owner))

    async def end(self, request_id: str, owner: str | None) -> RequestRow:
        return await _answer(self._admission.end(request_id, owner))

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float = 5.0) -> RequestRow:
        return await _answer(self._admission.park(request_id, owner, terms, wait_s))

    async def unpark(self, request_id: str, owner: str | None, wait_s: float = 0.0) -> RequestRow:
        return await _answer(self._admission.unpark(request_id, owner, wait_s))

    async def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow:
        return await _answer(self._admission.set_priority(request_id, owner, priority))

    def _require_engine(self) -> None:
        if not any(not task.done() for task in self._tasks):
            raise BackendLost("no engine is connected")


async def _answer(call: Awaitable[AnswerT]) -> AnswerT:
    """Raises `BackendLost` without the detail, which speaks of processes and machines: that is for the log."""
    try:
        return await call
    except ClusterError as error:
        logger.warning("%s", error)
        raise BackendLost("the scheduler behind this gateway does not answer") from error


def _sums_only(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whoever may ask for health should learn nothing of single requests: those of other API keys live here, too."""
    return {**_without(status, {"requests"}), "groups": [_without(row, {"survivor_id"}) for row in status["groups"]]}


def _without(row: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}
