"""Options that several bench commands share."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_MODEL = "smollm2-135m"

Model = Annotated[str, typer.Option(help="A known name or a model folder.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the facts here as JSON.")]
Check = Annotated[bool, typer.Option("--check", help="End with exit code 1 when a bar is missed.")]
Rounds = Annotated[int, typer.Option(min=1, help="Interleaved rounds; the medians are over these.")]
Tokens = Annotated[int, typer.Option(min=2, help="Generated tokens a stream.")]
Streams = Annotated[str, typer.Option(metavar="N,N,...", help="Streams at once.")]


def parse_streams(text: str) -> tuple[int, ...]:
    """Raises `typer.BadParameter` for what is no list of numbers from 1 to 256."""
    try:
        counts = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers like 1,4,8") from None
    if counts[0] < 1 or counts[-1] > 256:
        raise typer.BadParameter(f"{text!r}: each number of streams must lie between 1 and 256")
    return counts
