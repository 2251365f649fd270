"""The demo's picture: a table that moves on a terminal, a line for each change of state in a pipe."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bench.chat import ChatRun, ChatState

COLOURS = {
    ChatState.WAITING: "dim",
    ChatState.STREAMING: "green",
    ChatState.PARKED: "yellow",
    ChatState.DONE: "bold green",
    ChatState.REFUSED: "bold red",
}
NAME_WIDTH = 12


class LiveTable:
    """Give it runs as they change; it draws them in the order in which they were first seen."""

    def __init__(self, console: Console, title: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._console, self._title, self._now = console, title, now
        self._started = now()
        self._runs: dict[str, ChatRun] = {}
        self._told: dict[str, ChatState] = {}

    @contextlib.contextmanager
    def shown(self) -> Iterator["LiveTable"]:
        if not self._console.is_terminal:
            yield self
            return
        with Live(get_renderable=self.table, console=self._console, refresh_per_second=8):
            yield self

    def watch(self, run: ChatRun) -> None:
        self._runs[run.chat.name] = run
        if not self._console.is_terminal and self._told.get(run.chat.name) is not run.state:
            self._told[run.chat.name] = run.state
            self._console.print(self._line(run), highlight=False, markup=False, soft_wrap=True)

    def table(self) -> Table:
        table = Table(title=f"{self._title}: {self._now() - self._started:.0f} s", title_justify="left")
        table.add_column("chat", min_width=NAME_WIDTH)
        table.add_column("priority", justify="right")
        table.add_column("state", min_width=9)
        table.add_column("tokens", justify="right", min_width=9)
        table.add_column("parks", justify="right")
        table.add_column("ended", justify="right", min_width=7)
        for run in self._runs.values():
            ended = "" if run.ended is None else f"{run.ended - run.started:.1f} s"
            state = f"[{COLOURS[run.state]}]{run.state}[/]"
            table.add_row(run.chat.name, str(run.chat.priority), state, tokens(run), str(num_parks(run)), ended)
        return table

    def _line(self, run: ChatRun) -> str:
        line = f"{self._now() - self._started:6.1f} s  {run.chat.name:<{NAME_WIDTH}} {run.state:<9} {tokens(run):>9}"
        return f"{line}  {run.error}" if run.error else line


def tokens(run: ChatRun) -> str:
    """Events stand for tokens until the usage block has come."""
    return f"{run.completion_tokens or run.num_events}/{run.chat.max_tokens}"


def num_parks(run: ChatRun) -> int:
    return max(run.parks, run.parks_seen)
