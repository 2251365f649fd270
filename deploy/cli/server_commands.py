"""Commands for whoever runs a server: see its requests, park, unpark, re-rank and end them, and drain it.

All of them speak gRPC to the admin interface (`deploy/admin/v1/admin.proto`), and find it by themselves if one server
of this user runs on this machine.
"""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from deploy.admin.errors import OrderFailed
from deploy.cli.admin_options import Admin, AsJson, Debug, RequestId, TlsCa, TokenFile
from deploy.cli.connecting import connected
from deploy.cli.tables import event_line, request_line, request_table, status_view
from scheduler.admission import HoldEnd

if TYPE_CHECKING:
    from deploy.admin.connection import AdminConnection

PANEL = "A running server"

_DRAIN_POLL_S = 0.25
_MAX_PRIORITY = 2**31 - 1
_MAX_NUMBER = 2**63 - 1


def ps(
    *,
    as_json: AsJson = False,
    no_trunc: Annotated[bool, typer.Option("--no-trunc", help="Show ids in full.")] = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """List the living requests in order of arrival.

    TIER is the priority (higher wins), PAGES are held in the pool, RAM are pages in host RAM.
    """
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        rows = server.requests()
        if as_json:
            typer.echo(json.dumps(rows, ensure_ascii=False))
        else:
            _console().print(request_table(rows, whole_ids=no_trunc))


def park(
    *,
    request_id: RequestId,
    deadline: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End the hold by itself after so long.", show_default="never"),
    ] = None,
    then: Annotated[
        HoldEnd | None, typer.Option(help="What to do at the deadline.", show_default="unpark, with --deadline")
    ] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="Wait so long for its memory to be free.")] = 5.0,
    as_json: AsJson = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """Hold request ID: free its pages and its seat until `parkade unpark`, or until the deadline.

    Examples:

      parkade park fbd9

      parkade park fbd9 --deadline 600 --then cancel
    """
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        if then is not None and deadline is None:
            raise OrderFailed("--then says what happens at the deadline: give --deadline SECONDS too, or neither")
        found = server.full_id(request_id)
        _show(server.park(found, deadline_s=deadline, then=then, wait_s=wait), as_json=as_json)


def unpark(
    *,
    request_id: RequestId,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="Wait so long for it to run again.")] = 0.0,
    as_json: AsJson = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """End the hold of request ID: it goes on, token for token, when there is room."""
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        _show(server.unpark(server.full_id(request_id), wait_s=wait), as_json=as_json)


def priority(
    *,
    request_id: RequestId,
    value: Annotated[
        int,
        typer.Argument(
            metavar="PRIORITY",
            help="Higher wins; 0 is the default of requests.",
            show_default=False,
            min=-_MAX_PRIORITY - 1,
            max=_MAX_PRIORITY,
        ),
    ],
    as_json: AsJson = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """Change the priority of request ID, whatever it is doing."""
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        _show(server.set_priority(server.full_id(request_id), value), as_json=as_json)


def cancel(
    *,
    request_id: RequestId,
    as_json: AsJson = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """End request ID. Its client is told that it was cancelled."""
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        _show(server.cancel(server.full_id(request_id)), as_json=as_json)


def drain(
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the last request has ended.")] = False,
    as_json: AsJson = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """Take no new requests (clients get 503) and let those that live go on to their ends.

    A held request does not end by itself: unpark or cancel it. --wait says how many there are.
    """
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        living = server.drain()
        if wait and living:
            living = _wait_until_drained(server)
        _say({"draining": True, "living": living}, f"Draining; {living} requests live.", as_json=as_json)


def _wait_until_drained(server: "AdminConnection") -> int:
    """How many live then: none. Raises `OrderFailed` when somebody ends the draining meanwhile."""
    told = 0
    while rows := server.requests():
        if not server.status()["draining"]:
            raise OrderFailed(f"somebody has ended the draining (`parkade undrain`); {len(rows)} requests live")
        held = sum(row["held"] for row in rows)
        if held not in (told, 0):
            typer.echo(
                f"{held} of {len(rows)} living requests are held: each ends only after `parkade unpark`, "
                "`parkade cancel` or its deadline",
                err=True,
            )
        told = held
        time.sleep(_DRAIN_POLL_S)
    return 0


def undrain(
    *,
    as_json: AsJson = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """Take new requests again."""
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        server.undrain()
        _say({"draining": False}, "New requests are taken.", as_json=as_json)


def status(
    *,
    as_json: AsJson = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """Show pool, host RAM and seats, and how many requests are in which state."""
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        found = server.status()
        if as_json:
            typer.echo(json.dumps(found, ensure_ascii=False))
        else:
            _console().print(status_view(found))


def watch(
    *,
    request_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Only what happens to this request.", show_default=False),
    ] = None,
    from_number: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="NUMBER",
            help="Begin with this event; 0: all that are kept.",
            show_default="now",
            min=0,
            max=_MAX_NUMBER,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    admin: Admin = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    debug: Debug = False,
) -> None:
    """Print what happens to requests as it happens: parks, restores, ends, pressure.

    Ctrl-C ends it; with ID, the end of that request does, too.
    """
    with connected(admin, token_file, tls_ca, debug=debug) as server:
        wanted = _watched(server, request_id, from_number) if request_id else ""
        try:
            for event in server.watch(from_number=from_number, request_id=wanted):
                typer.echo(json.dumps(event, ensure_ascii=False) if as_json else event_line(event))
        except KeyboardInterrupt:
            return


def _watched(server: "AdminConnection", request_id: str, from_number: int | None) -> str:
    """A living request's id; with a number also the whole id of one that has ended, of which events may be kept."""
    if from_number is not None and not server.requests(request_id):
        return request_id
    return server.full_id(request_id)


def _show(row: dict[str, Any], *, as_json: bool) -> None:
    _say(row, request_line(row), as_json=as_json)


def _say(value: dict[str, Any], line: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False) if as_json else line)


def _console() -> Console:
    """On a pipe lines are as long as they need to be."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


ALL = (ps, park, unpark, priority, cancel, drain, undrain, status, watch)
