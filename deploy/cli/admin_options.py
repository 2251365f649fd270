"""Arguments and flags of the commands that speak to a running server."""

from pathlib import Path
from typing import Annotated

import typer

RequestId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A request's id, or as much of its beginning as no other has; `parkade ps` shows them.",
        show_default=False,
    ),
]
Admin = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The server's admin address.  [env: PARKADE_ADMIN]",
        show_default="the one server that runs here",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with its admin token.  [env: PARKADE_ADMIN_TOKEN_FILE]",
        show_default="the one it names itself",
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="PEM certificates to trust; with it, TLS is spoken.  [env: PARKADE_ADMIN_TLS_CA]",
        show_default="the server's own, if it has one",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")]
