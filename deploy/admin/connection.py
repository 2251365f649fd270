"""A command's end of the admin interface: blocking calls with the token, plain values back, errors in one line."""

from collections.abc import Iterator
from typing import Any

import grpc

from cluster.waits import MAX_WAIT_S
from deploy.admin.errors import NotReached, OrderFailed
from deploy.admin.fields import DEFAULT_PARK_WAIT_S, MAX_LISTED
from deploy.admin.finding import Endpoint
from deploy.admin.messages import HOLD_ENDS
from deploy.admin.plain import Plain, event_object, lost_object, request_object, status_object
from deploy.admin.v1 import admin_pb2, admin_pb2_grpc
from scheduler.admission import HoldEnd

# How long an answer may take beyond what the call itself waits for.
_CALL_S = 15.0
_OPTIONS = (("grpc.max_receive_message_length", 16 * 2**20), ("grpc.enable_http_proxy", 0))


class AdminConnection:
    """A context manager. Every method raises `NotReached` and `OrderFailed`; shapes are those of `plain`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._channel = _channel(endpoint)
        self._stub: Any = admin_pb2_grpc.AdminStub(self._channel)
        self._metadata = (("authorization", f"Bearer {endpoint.token}"),)

    def __enter__(self) -> "AdminConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def requests(self, id_prefix: str = "") -> list[Plain]:
        """Living requests in order of arrival, the first 10,000, and only those whose id may be cut to `id_prefix`."""
        request = admin_pb2.ListRequestsRequest(id_prefix=id_prefix, limit=MAX_LISTED)
        return [request_object(message) for message in self._call("ListRequests", request).requests]

    def full_id(self, id_prefix: str) -> str:
        """The one id that begins so. Raises `OrderFailed` when none does, or several do."""
        found = [row["id"] for row in self.requests(id_prefix)] if id_prefix else []
        if id_prefix in found or len(found) == 1:
            return id_prefix if id_prefix in found else found[0]
        if not found:
            raise OrderFailed(f"no living request's id begins with {id_prefix!r}; `parkade ps` lists them")
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise OrderFailed(f"{len(found)} ids begin with {id_prefix!r}: {shown}; write more of the one you mean")

    def park(
        self, request_id: str, *, deadline_s: float | None, then: HoldEnd | None, wait_s: float = DEFAULT_PARK_WAIT_S
    ) -> Plain:
        request = admin_pb2.ParkRequest(
            request_id=request_id,
            deadline_s=deadline_s,
            then=None if then is None else HOLD_ENDS[then],
            wait_s=wait_s,
        )
        return request_object(self._call("Park", request, wait_s))

    def unpark(self, request_id: str, *, wait_s: float = 0.0) -> Plain:
        request = admin_pb2.UnparkRequest(request_id=request_id, wait_s=wait_s)
        return request_object(self._call("Unpark", request, wait_s))

    def set_priority(self, request_id: str, priority: int) -> Plain:
        request = admin_pb2.SetPriorityRequest(request_id=request_id, priority=priority)
        return request_object(self._call("SetPriority", request))

    def cancel(self, request_id: str) -> Plain:
        return request_object(self._call("Cancel", admin_pb2.CancelRequest(request_id=request_id)))

    def drain(self) -> int:
        """How many requests live still."""
        living: int = self._call("Drain", admin_pb2.DrainRequest()).living
        return living

    def undrain(self) -> None:
        self._call("Undrain", admin_pb2.UndrainRequest())

    def status(self) -> Plain:
        return status_object(self._call("GetStatus", admin_pb2.GetStatusRequest()))

    def watch(self, *, from_number: int | None = None, request_id: str = "") -> Iterator[Plain]:
        """Events one by one until the iterator is closed, or the request has ended; the end of the server raises
        `NotReached`, a request that has ended before `OrderFailed`."""
        request = admin_pb2.WatchEventsRequest(from_number=from_number, request_id=request_id)
        stream = self._stub.WatchEvents(request, metadata=self._metadata)
        begun = False
        try:
            for response in stream:
                begun = True
                if response.lost:
                    yield lost_object(response.lost)
                yield from map(event_object, response.events)
        except grpc.RpcError as error:
            is_end = begun and isinstance(error, grpc.Call) and error.code() is not grpc.StatusCode.NOT_FOUND
            raise self._end_of_stream() if is_end else self._told(error) from error
        finally:
            stream.cancel()

    def _call(self, method: str, request: Any, wait_s: float = 0.0) -> Any:
        allowed_s = wait_s if 0.0 <= wait_s <= MAX_WAIT_S else 0.0  # else the server tells the bound
        try:
            return getattr(self._stub, method)(request, timeout=allowed_s + _CALL_S, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._told(error) from error

    def _end_of_stream(self) -> NotReached:
        return NotReached(f"the server at {self._endpoint.address} has ended the stream; it stops, or is lost")

    def _told(self, error: grpc.RpcError) -> NotReached | OrderFailed:
        assert isinstance(error, grpc.Call)
        address, detail = self._endpoint.address, error.details() or ""
        match error.code():
            case grpc.StatusCode.UNAUTHENTICATED:
                return NotReached(f"the server at {address} does not take the token in {self._endpoint.token_file}")
            case grpc.StatusCode.UNAVAILABLE:
                return NotReached(f"the server at {address} cannot be reached: {detail}")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return NotReached(f"the server at {address} did not answer in time")
            case _:
                return OrderFailed(detail or str(error.code()))


def _channel(endpoint: Endpoint) -> grpc.Channel:
    if endpoint.tls_ca is None:
        return grpc.insecure_channel(endpoint.address, options=_OPTIONS)
    try:
        trusted = endpoint.tls_ca.read_bytes()
    except OSError as error:
        raise NotReached(f"cannot read the certificates in {endpoint.tls_ca}: {error.strerror}") from error
    return grpc.secure_channel(endpoint.address, grpc.ssl_channel_credentials(trusted), options=_OPTIONS)
