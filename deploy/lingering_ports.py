"""Listening at once on the port of a server that has just ended.

The system keeps a port for a minute after its server was the one to hang up, unless both the old and the new listener
say that this does not matter (SO_REUSEADDR), as servers do. The one that Serve starts in a replica does not say it: a
server could not be started again on its port, and a replica that died could not be replaced.
"""

import socket
import sys
from typing import Any

_SERVES_LISTENERS = "ray.serve._private.http_util"


class _Sockets:
    """The module `socket`, whose sockets may take a port that only lingers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def socket(self, *args: Any) -> socket.socket:
        made = socket.socket(*args)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return made


def take_lingering_ports() -> None:
    """From now on, in this process, for listeners of Serve; nothing where Serve is not loaded."""
    if (listeners := sys.modules.get(_SERVES_LISTENERS)) is not None:
        vars(listeners)["socket"] = _Sockets()
