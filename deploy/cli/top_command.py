"""`parkade top`: a live board of a running server."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from deploy.cli.admin_options import Admin, Debug, TlsCa, TokenFile
from deploy.cli.connecting import connected
from deploy.cli.keyboard import single_keys
from deploy.cli.tables import request_table, status_view

if TYPE_CHECKING:
    from deploy.admin.connection import AdminConnection

_QUIT = ("q", "Q", "\x1b")
_PIPE_WIDTH = 200


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one board and end.")] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time between two looks.", min=0.1, max=60.0)
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a board as one JSON object a line.")] = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """Show pool, host RAM and every request, live. q or Ctrl-C ends it."""
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        try:
            if as_json:
                _print_objects(server, interval, once=once)
            elif once:
                _print_once(server)
            else:
                _run_live(server, interval)
        except KeyboardInterrupt:
            return


def board(status: dict[str, Any], rows: list[dict[str, Any]], *, most_rows: int | None = None) -> RenderableType:
    """Bars above, a row a request below; of more than `most_rows` the last ones are counted only."""
    shown = rows if most_rows is None else rows[:most_rows]
    parts: list[RenderableType] = [status_view(status), Text(), request_table(shown)]
    if len(shown) < len(rows):
        parts.append(Text(f"and {len(rows) - len(shown)} more; `parkade ps` lists all", style="dim"))
    return Group(*parts)


def _print_objects(server: "AdminConnection", interval_s: float, *, once: bool) -> None:
    while True:
        typer.echo(json.dumps({"status": server.status(), "requests": server.requests()}, ensure_ascii=False))
        if once:
            return
        time.sleep(interval_s)


def _print_once(server: "AdminConnection") -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(board(server.status(), server.requests()))


def _run_live(server: "AdminConnection", interval_s: float) -> None:
    console = Console(highlight=False)

    def look() -> RenderableType:
        status = server.status()
        # Bars, counts, a blank line, the header, and the line that counts the rest.
        most = max(1, console.height - 3 * len(status["groups"]) - 4)
        return board(status, server.requests(), most_rows=most)

    with single_keys() as wait_for_key, Live(look(), console=console, screen=True, auto_refresh=False) as live:
        while wait_for_key(interval_s) not in _QUIT:
            live.update(look(), refresh=True)
