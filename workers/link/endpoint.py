"""Where a link's server listens: "unix:/absolute/path" on one host, "tcp:host:port" between hosts."""

import asyncio
import secrets
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workers.link.errors import BadEndpoint, LinkClosed

_MAX_UNIX_PATH = 107  # sun_path holds 108 bytes with the closing zero


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`path` for a Unix socket, else `host` and `port`."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"tcp:{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Raises BadEndpoint."""
    kind, _, rest = text.partition(":")
    if kind == "unix" and rest.startswith("/"):
        if len(rest.encode()) > _MAX_UNIX_PATH:
            raise BadEndpoint(f"socket path {rest} has {len(rest.encode())} bytes, the system allows {_MAX_UNIX_PATH}")
        return Endpoint(path=rest)
    host, colon, port = rest.rpartition(":")
    if kind == "tcp" and colon and host and port.isdecimal() and int(port) < 65536:
        return Endpoint(host=host, port=int(port))
    raise BadEndpoint(f"endpoint {text!r} is neither unix:/absolute/path nor tcp:host:port")


def new_unix_endpoint() -> Endpoint:
    """A fresh socket path in a fresh folder that only this user may enter."""
    folder = tempfile.mkdtemp(prefix="parkade-")  # mode 0700
    return parse_endpoint(f"unix:{folder}/link.sock")


def new_token() -> str:
    """The secret that a hello must show."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket; `endpoint` is where peers find it (the real port when 0 was asked for)."""

    server: asyncio.AbstractServer
    endpoint: Endpoint

    def close(self) -> None:
        """Stop listening and remove the socket's file and folder; open connections go on. Idempotent."""
        self.server.close()
        if self.endpoint.path:
            path = Path(self.endpoint.path)
            path.unlink(missing_ok=True)
            if path.parent.name.startswith("parkade-") and not any(path.parent.glob("*")):
                path.parent.rmdir()


async def listen(endpoint: Endpoint, protocol: Callable[[], asyncio.Protocol]) -> Listener:
    """Accept connections, each served by a new `protocol()`. The event loop sets TCP_NODELAY on them by itself."""
    loop = asyncio.get_running_loop()
    if endpoint.path:
        return Listener(await loop.create_unix_server(protocol, endpoint.path), endpoint)
    server = await loop.create_server(protocol, endpoint.host, endpoint.port)
    port = server.sockets[0].getsockname()[1]
    return Listener(server, Endpoint(host=endpoint.host, port=port))


def connect(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """A blocking connection. Raises LinkClosed when nobody listens there."""
    link = socket.socket(socket.AF_UNIX if endpoint.path else _family(endpoint.host), socket.SOCK_STREAM)
    link.settimeout(timeout_s)
    try:
        link.connect(endpoint.path or (endpoint.host, endpoint.port))
    except OSError as error:
        link.close()
        raise LinkClosed(f"nobody answers at {endpoint}: {error}") from error
    if not endpoint.path:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.settimeout(None)
    return link


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
