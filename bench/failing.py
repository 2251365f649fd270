"""How a bench ends when it cannot go on: servers are ended first, whatever the reason.

Expected reasons are one line on stderr and exit code 2; exit code 1 means a missed bar.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from bench.streams import StreamError
from bench.subprocess_server import ServerError
from deploy.models import ModelError

NOT_MEASURED = 2
TERMINATED = 128 + signal.SIGTERM


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns expected errors into the exit of the command, and SIGTERM into an ordinary unwinding of it."""
    before = signal.signal(signal.SIGTERM, _unwind)
    try:
        yield
    except (ServerError, StreamError, ModelError) as error:
        typer.echo(f"parkade: {error}", err=True)
        raise typer.Exit(NOT_MEASURED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _unwind(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise SystemExit(TERMINATED)
