"""Who may call: a bearer token in the metadata of every call but a health check."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc

# Not the service's Watch: streams of strangers could take all the calls that there are.
_OPEN = frozenset(("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List"))
_REFUSAL = "this call needs the metadata `authorization: Bearer TOKEN` with the server's admin token"


class TokenGuard(grpc.aio.ServerInterceptor):
    """Ends calls without the token before their messages are parsed."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler_call_details.method in _OPEN or self._admits(handler_call_details.invocation_metadata):
            return handler
        if handler is not None and handler.response_streaming:
            if handler.request_streaming:
                return grpc.stream_stream_rpc_method_handler(_refuse)
            return grpc.unary_stream_rpc_method_handler(_refuse)
        return grpc.unary_unary_rpc_method_handler(_refuse)

    def _admits(self, metadata: Any) -> bool:
        shown = [value for key, value in metadata if key == "authorization"]
        if len(shown) != 1:
            return False
        value = shown[0] if isinstance(shown[0], bytes) else shown[0].encode("utf-8", "replace")
        return hmac.compare_digest(value, self._expected)


async def _refuse(_request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)
