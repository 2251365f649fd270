"""The methods of `parkade.admin.v1.Admin` over admission. What each does is told in `admin.proto`."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import wraps
from typing import Any, Protocol, TypeVar

import grpc

from cluster.watch import WatchBatch
from deploy.admin import fields
from deploy.admin.following import follow
from deploy.admin.messages import request_message, status_message, watch_message
from deploy.admin.status_codes import TooManyWatchers, status_of
from deploy.admin.v1 import admin_pb2, admin_pb2_grpc
from scheduler.admission import HoldTerms, RequestRow

MAX_WATCHERS = 16

# An answer needs time to arrive before the client's deadline.
_MARGIN_S = 0.25

Context = grpc.aio.ServicerContext[Any, Any]
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Method = Callable[["AdminServicer", RequestT, Context], Awaitable[ResponseT]]


class AdmissionLink(Protocol):
    """What is asked of `cluster.AdmissionClient`; `owner` is always None, who sees all."""

    async def requests(self, owner: str | None) -> list[RequestRow]: ...

    async def request(self, request_id: str, owner: str | None) -> RequestRow: ...

    async def end(self, request_id: str, owner: str | None) -> RequestRow: ...

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float) -> RequestRow: ...

    async def unpark(self, request_id: str, owner: str | None, wait_s: float) -> RequestRow: ...

    async def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow: ...

    async def drain(self) -> None: ...

    async def undrain(self) -> None: ...

    async def status(self) -> Mapping[str, Any]: ...

    async def watch(self, after: int, wait_s: float) -> WatchBatch: ...


def _told(method: "Method[RequestT, ResponseT]") -> "Method[RequestT, ResponseT]":
    """An error ends the call with its status instead of gRPC's UNKNOWN."""

    @wraps(method)
    async def answer(self: "AdminServicer", request: RequestT, context: Context) -> ResponseT:
        try:
            return await method(self, request, context)
        except Exception as error:
            code, message, metadata = status_of(error)
            await context.abort(code, message, metadata)

    return answer


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Holds nothing but the number of open watches."""

    def __init__(self, admission: AdmissionLink) -> None:
        self._admission = admission
        self._watchers = 0

    @_told
    async def ListRequests(self, request: admin_pb2.ListRequestsRequest, _: Context) -> admin_pb2.ListRequestsResponse:
        states, limit = fields.checked_states(request.states), fields.checked_limit(request.limit)
        prefix = fields.checked_prefix(request.id_prefix)
        rows = [
            row
            for row in await self._admission.requests(None)
            if row.state in states and row.request_id.startswith(prefix)
        ]
        return admin_pb2.ListRequestsResponse(requests=map(request_message, rows[:limit]), total=len(rows))

    @_told
    async def GetRequest(self, request: admin_pb2.GetRequestRequest, _: Context) -> admin_pb2.Request:
        return request_message(await self._admission.request(fields.checked_id(request.request_id), None))

    @_told
    async def Park(self, request: admin_pb2.ParkRequest, context: Context) -> admin_pb2.Request:
        request_id, terms = fields.checked_id(request.request_id), fields.checked_terms(request)
        wait_s = request.wait_s if request.HasField("wait_s") else fields.DEFAULT_PARK_WAIT_S
        row = await self._admission.park(request_id, None, terms, _bounded(fields.checked_wait_s(wait_s), context))
        return request_message(row)

    @_told
    async def Unpark(self, request: admin_pb2.UnparkRequest, context: Context) -> admin_pb2.Request:
        request_id, wait_s = fields.checked_id(request.request_id), fields.checked_wait_s(request.wait_s)
        return request_message(await self._admission.unpark(request_id, None, _bounded(wait_s, context)))

    @_told
    async def SetPriority(self, request: admin_pb2.SetPriorityRequest, _: Context) -> admin_pb2.Request:
        request_id = fields.checked_id(request.request_id)
        return request_message(await self._admission.set_priority(request_id, None, request.priority))

    @_told
    async def Cancel(self, request: admin_pb2.CancelRequest, _: Context) -> admin_pb2.Request:
        return request_message(await self._admission.end(fields.checked_id(request.request_id), None))

    @_told
    async def Drain(self, _: admin_pb2.DrainRequest, __: Context) -> admin_pb2.DrainResponse:
        await self._admission.drain()
        return admin_pb2.DrainResponse(living=len(await self._admission.requests(None)))

    @_told
    async def Undrain(self, _: admin_pb2.UndrainRequest, __: Context) -> admin_pb2.UndrainResponse:
        await self._admission.undrain()
        return admin_pb2.UndrainResponse()

    @_told
    async def GetStatus(self, _: admin_pb2.GetStatusRequest, __: Context) -> admin_pb2.GetStatusResponse:
        return status_message(await self._admission.status())

    @_told
    async def WatchEvents(self, request: admin_pb2.WatchEventsRequest, context: Context) -> None:
        """Ends with the call, which gRPC cancels when the client goes or its deadline comes, or with the request."""
        wanted = fields.checked_watched(request.request_id)
        start = request.from_number if request.HasField("from_number") else -1
        if self._watchers >= MAX_WATCHERS:
            raise TooManyWatchers(f"{self._watchers} streams of WatchEvents are open, the most there may be: end one")
        self._watchers += 1
        try:
            async with aclosing(follow(self._admission, wanted, start)) as following:
                async for batch, events in following:
                    await context.write(watch_message(batch, events))
        finally:
            self._watchers -= 1


def _bounded(wait_s: float, context: Context) -> float:
    """No longer than the client waits, so that it gets an answer."""
    left_s = context.time_remaining()
    return wait_s if left_s is None else max(0.0, min(wait_s, left_s - _MARGIN_S))
