"""`parkade`: its commands, and the commands that packages above this one bring along."""

import importlib
import importlib.metadata
import importlib.util
from typing import Annotated

import typer

from deploy.cli.model_commands import model_app
from deploy.cli.serve_command import serve_command
from deploy.cli.server_commands import ALL, PANEL, priority
from deploy.cli.top_command import top

# Packages above `deploy` cannot be imported from here by the floors' order, so they are looked up by name at run time:
# a module with a Typer `app` becomes a group of commands, a module with a function `run` becomes one command.
GROUPS = {"bench": "bench.cli"}
COMMANDS = {"demo": "bench.demo"}

app = typer.Typer(
    name="parkade",
    help="Serve a language model on Ray, tensor-parallel, and park live requests in host RAM when the KV pool is full.",
    epilog="Start here: parkade serve smollm2-135m",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"parkade {importlib.metadata.version('parkade')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of `parkade` itself."""


def mount(target: typer.Typer) -> None:
    """Add the commands of packages above, where they are installed."""
    for name, module in GROUPS.items():
        if _exists(module):
            target.add_typer(importlib.import_module(module).app, name=name)
    for name, module in COMMANDS.items():
        if _exists(module):
            target.command(name)(importlib.import_module(module).run)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


app.command("serve")(serve_command)
app.add_typer(model_app, name="model")
for function in (*ALL, top):
    # A negative number is an argument of `priority`, not a flag.
    lenient = {"ignore_unknown_options": function is priority}
    app.command(function.__name__, rich_help_panel=PANEL, context_settings=lenient)(function)
mount(app)


def main() -> None:
    """The console script."""
    app()
