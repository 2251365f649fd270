"""A command's end of the admin interface: blocking calls with the token, errors in one line for people."""

from collections.abc import Iterator
from typing import Any

import grpc

from deploy.admin.errors import NotReached, OrderFailed
from deploy.admin.finding import Endpoint
from deploy.admin.v1 import admin_pb2, admin_pb2_grpc

CALL_S = 15.0

_OPTIONS = (("grpc.max_receive_message_length", 16 * 2**20), ("grpc.enable_http_proxy", 0))


class AdminConnection:
    """A context manager. Methods raise `NotReached` and `OrderFailed`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._channel = _channel(endpoint)
        self._stub: Any = admin_pb2_grpc.AdminStub(self._channel)
        self._metadata = (("authorization", f"Bearer {endpoint.token}"),)

    def __enter__(self) -> "AdminConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, method: str, request: Any, timeout_s: float = CALL_S) -> Any:
        """One call of `method`, which answers once."""
        try:
            return getattr(self._stub, method)(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._told(error) from error

    def requests(self, **filters: Any) -> list[admin_pb2.Request]:
        """The living requests that fit the filters of ListRequests, the first 10,000."""
        request = admin_pb2.ListRequestsRequest(limit=10_000, **filters)
        return list(self.call("ListRequests", request).requests)

    def status(self) -> admin_pb2.GetStatusResponse:
        answer: admin_pb2.GetStatusResponse = self.call("GetStatus", admin_pb2.GetStatusRequest())
        return answer

    def watch(self, request: admin_pb2.WatchEventsRequest) -> Iterator[admin_pb2.WatchEventsResponse]:
        """Until the server ends, which raises `NotReached`, or the iterator is closed."""
        stream = self._stub.WatchEvents(request, metadata=self._metadata)
        try:
            yield from stream
        except grpc.RpcError as error:
            raise self._told(error) from error
        finally:
            stream.cancel()

    def _told(self, error: grpc.RpcError) -> NotReached | OrderFailed:
        assert isinstance(error, grpc.Call)
        address, detail = self._endpoint.address, error.details() or ""
        match error.code():
            case grpc.StatusCode.UNAUTHENTICATED:
                return NotReached(f"the server at {address} does not take the token in {self._endpoint.token_file}")
            case grpc.StatusCode.UNAVAILABLE:
                return NotReached(f"no admin interface answers at {address}: {detail}")
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
