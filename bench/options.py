"""Options that several bench commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from deploy.config import read_environment
from deploy.models import resolve_model

DEFAULT_MODEL = "smollm2-135m"

Model = Annotated[str, typer.Option(help="A known name or a model folder.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the facts here as JSON.")]
Check = Annotated[bool, typer.Option("--check", help="End with exit code 1 when a bar is missed.")]
Rounds = Annotated[int, typer.Option(min=1, help="Interleaved rounds; the medians are over these.")]
Tokens = Annotated[int, typer.Option(min=2, help="Generated tokens a stream.")]
Streams = Annotated[str, typer.Option(metavar="N,N,...", help="Streams at once.")]
Scale = Annotated[float, typer.Option(min=0.01, max=1.0, help="Shrinks all sizes alike: for a quick look.")]


def model_folder(model: str) -> Path:
    """The folder `parkade serve` would serve; fetched first when it is a known name."""
    environment = read_environment()
    return resolve_model(model, cache_dir=environment.cache_dir, pip_environment=dict(environment.variables))


def parse_parts(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Names out of `known`, comma-separated, once each and in its order. Raises `typer.BadParameter`."""
    asked = {part.strip() for part in text.split(",")}
    if strangers := asked - set(known):
        raise typer.BadParameter(f"no such part: {', '.join(sorted(strangers))!r}; there are {', '.join(known)}")
    return tuple(name for name in known if name in asked)


def parse_sizes(text: str, most: int) -> tuple[int, ...]:
    """Raises `typer.BadParameter` for what is no list of numbers from 1 to `most`."""
    try:
        sizes = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers like 100,500") from None
    if sizes[0] < 1 or sizes[-1] > most:
        raise typer.BadParameter(f"{text!r}: each number must lie between 1 and {most}")
    return sizes


def parse_streams(text: str) -> tuple[int, ...]:
    """Raises `typer.BadParameter` for what is no list of numbers from 1 to 256."""
    return parse_sizes(text, 256)
