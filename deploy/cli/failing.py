"""How a command fails: one line on stderr and exit code 1, or the whole trace with --debug."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from deploy.admin.errors import AdminError
from deploy.config import ConfigError
from deploy.models import ModelError
from deploy.serve.errors import ServeError

EXPECTED = (AdminError, ConfigError, ModelError, ServeError)


@contextmanager
def one_line_errors(*, debug: bool) -> Iterator[None]:
    """Turn what is raised inside into the exit of the command."""
    try:
        yield
    except EXPECTED as error:
        if debug:
            traceback.print_exc()
        typer.echo(f"parkade: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from None
    except BrokenPipeError:  # whoever read our output has enough: Typer ends the command quietly
        raise
    except (OSError, RuntimeError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        if debug:
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        typer.echo(f"parkade: internal error: {what} (run again with --debug to see where)", err=True)
        raise typer.Exit(1) from None
