"""A program: Serve's own listener, as a replica starts it, on ports that linger or are taken. Serve's import warns.

`python -m tests.deploy.serve.serve_listener [layers]` prints what came of each; with `layers` ours were asked for.
"""

import asyncio
import socket
import sys
from typing import Any

from ray.serve._private import http_util
from ray.serve.config import HTTPOptions

from deploy.request_ids import serve_layers


def lingering_port() -> int:
    """Of a server that has closed a connection and ended."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = int(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
    return port


async def listen(port: int) -> str:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        """Nobody asks."""

    options, loop = HTTPOptions(host="127.0.0.1", port=port), asyncio.get_running_loop()
    try:
        task, server = await http_util.start_asgi_http_server(application, options, event_loop=loop)
    except RuntimeError:
        return "refused"
    server.should_exit = True
    await asyncio.wait_for(task, 10)
    return "listened"


def main() -> None:
    if sys.argv[1:]:
        serve_layers()
    sys.stdout.write(f"lingering: {asyncio.run(listen(lingering_port()))}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        sys.stdout.write(f"taken: {asyncio.run(listen(int(taken.getsockname()[1])))}\n")


if __name__ == "__main__":
    main()
