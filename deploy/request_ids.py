"""Ids of HTTP requests, and the layer that gives a request its id before Serve does.

Serve stamps every request that comes without X-Request-Id with an id from an ordinary random generator, hands it on as
if the client had chosen it, and sends it back with the answer. `IdStamp` stands before Serve's own layers: so the id is
one of ours, which nobody can guess and whose prefix says what it names. Serve still sends it back.

What Serve would answer by itself, past our door, is met here too: header values that it cannot decode, and its own
pages below `/-/`, which its control plane does not ask for over HTTP.

Serve's processes import this module by the name in `SERVE_LAYERS`; it imports next to nothing.
"""

import uuid

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from deploy.errors import NotFound
from deploy.lingering_ports import take_lingering_ports

HEADER = "X-Request-Id"
# For the environment of whoever starts Ray, where Serve's proxies and replicas read it. Without it ids are Serve's.
SERVE_LAYERS = {"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deploy.request_ids.serve_layers"}
_SERVES_OWN = "/-/"
_PREFIXES = {"/v1/chat/completions": "chatcmpl", "/v1/completions": "cmpl"}


def new_request_id(prefix: str) -> str:
    """Unguessable: who knows an id, and has the same owner, steers its request."""
    return f"{prefix}-{uuid.uuid4().hex}"


class IdStamp:
    """Leaves an id alone that the client has chosen. One that is not ASCII stays as wrong as it was, but readable."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["path"].startswith(_SERVES_OWN):
                await _no_route(scope, receive, send)
                return
            scope["headers"] = [(name, _readable(name, value)) for name, value in scope["headers"]]
            headers = MutableHeaders(scope=scope)
            if HEADER not in headers:
                headers[HEADER] = new_request_id(_PREFIXES.get(scope["path"], "req"))
        await self._app(scope, receive, send)


def _readable(name: bytes, value: bytes) -> bytes:
    """ASCII for what Serve cannot decode; an id of the client's, which is sent back, is ASCII always."""
    if value.isascii() or (name.lower() != HEADER.lower().encode() and _is_utf8(value)):
        return value
    return bytes(byte if byte < 0x80 else ord("?") for byte in value)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    error = NotFound("there is no such route; see /openapi.json", code="route_not_found")
    headers = {HEADER: new_request_id("req")}
    await JSONResponse(error.body, status_code=error.status, headers=headers)(scope, receive, send)


def serve_layers() -> list[Middleware]:
    """What Serve calls for, before it listens."""
    take_lingering_ports()
    return [Middleware(IdStamp)]
