"""How a bench fails for an expected reason: one line on stderr, exit code 2. Exit code 1 means a missed bar."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from bench.streams import StreamError
from bench.subprocess_server import ServerError
from deploy.models import ModelError

NOT_MEASURED = 2


@contextmanager
def one_line_errors() -> Iterator[None]:
    try:
        yield
    except (ServerError, StreamError, ModelError) as error:
        typer.echo(f"parkade: {error}", err=True)
        raise typer.Exit(NOT_MEASURED) from None
