"""A command's way to the running server. gRPC is imported when a command asks for it: `parkade --help` stays quick."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.admin.finding import Named, find_server
from deploy.cli.failing import one_line_errors
from deploy.config import read_environment

if TYPE_CHECKING:
    from deploy.admin.connection import AdminConnection


@contextmanager
def connected(
    admin: str | None, token_file: Path | None, tls_ca: Path | None, *, debug: bool
) -> Iterator["AdminConnection"]:
    """What goes wrong inside ends the command with one line."""
    with one_line_errors(debug=debug):
        endpoint = find_server(Named(address=admin, token_file=token_file, tls_ca=tls_ca), read_environment())
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what its core says on stderr is not for people
        from deploy.admin.connection import AdminConnection  # noqa: PLC0415

        with AdminConnection(endpoint) as connection:
            yield connection
