"""Progress of a fetch as a bar on stderr; on a pipe, one line for each thing begun."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

Report = Callable[[str, float], None]


@contextmanager
def fetch_progress() -> Iterator[Report]:
    """Yields what `fetch_model` reports to. Nothing is shown until something is reported."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        yield _bars(bar)


def _lines() -> Report:
    seen: set[str] = set()

    def report(what: str, _: float) -> None:
        if what not in seen:
            seen.add(what)
            typer.echo(f"{what} ...", err=True)

    return report


def _bars(bar: Progress) -> Report:
    tasks: dict[str, TaskID] = {}

    def report(what: str, done: float) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=1.0)
        bar.update(tasks[what], completed=done)

    return report
