"""Free ports of this machine, for those who must know theirs before they listen."""

import contextlib
import secrets
import socket

_FIXED_PORTS = (20_000, 32_768)  # above those of Ray's workers, below those that Linux hands out
_TRIES = 50


def free_port(host: str = "127.0.0.1", count: int = 1) -> int:
    """The first of `count` ports in a row that nobody listens on, nor gets by chance before they are listened on.

    The system hands out others, to who asks for port 0 and to each connection that is opened: a port got from it may be
    another's a moment later. Where all that were tried are taken, one that the system hands out all the same.
    """
    first, last = _FIXED_PORTS
    for _ in range(_TRIES):
        port = first + secrets.randbelow(last - first - count)
        if all(_is_free(host, port + step) for step in range(count)):
            return port
    with _probe(host) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _is_free(host: str, port: int) -> bool:
    with _probe(host) as probe, contextlib.suppress(OSError):
        probe.bind((host, port))
        return True
    return False


def _probe(host: str) -> socket.socket:
    family, kind, *_ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    return socket.socket(family, kind)
