"""`parkade bench`: each command prints a table, writes JSON, and holds its bars with --check.

Here what concerns speed; what parking promises is shown by `proof_commands`. What measures is imported by the command
that runs it: `parkade --help` must not wait for compilers.
"""

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import options, proof_commands
from bench.failing import one_line_errors
from bench.options import model_folder
from bench.rounds import Work

app = typer.Typer(
    help="Measure, in interleaved rounds. Run it on an otherwise idle machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command("engine")
def engine_command(
    *,
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    streams: options.Streams = "1,4,8,16",
    tokens: options.Tokens = 128,
    rounds: options.Rounds = 3,
    arms: Annotated[str, typer.Option(help="Own arms, out of HTTP and engine, TP1 and TP2.")] = (
        "HTTP TP1,HTTP TP2,engine TP1,engine TP2"
    ),
    llama_server: Annotated[
        Path | None, typer.Option(metavar="PATH", help="llama.cpp's llama-server, to run beside; needs --gguf.")
    ] = None,
    gguf: Annotated[Path | None, typer.Option(metavar="FILE", help="The same weights in BF16 for it.")] = None,
    peer: Annotated[
        str | None, typer.Option(metavar="URL", help="A running OpenAI-compatible server to run beside.")
    ] = None,
) -> None:
    """Decode tokens/s by number of streams, and prefill tokens/s: over HTTP and from the engine alone, TP1 and TP2.

    TP1 is one rank with two threads, TP2 two ranks with one thread each. The bars compare HTTP TP2 with llama-server on
    the same weights in BF16; --check therefore needs --llama-server and --gguf.
    """
    from bench.engine import OWN_ARMS, EngineBench, run_engine_bench  # noqa: PLC0415

    if (llama_server is None) != (gguf is None):
        raise typer.BadParameter("--llama-server and --gguf come together")
    if check and llama_server is None:
        raise typer.BadParameter("--check compares with llama-server: give --llama-server and --gguf")
    chosen = tuple(re.sub(r"\s+", " ", arm.strip()) for arm in arms.split(","))
    if unknown := set(chosen) - set(OWN_ARMS):
        raise typer.BadParameter(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(OWN_ARMS)}")
    with one_line_errors():
        bench = EngineBench(
            model=model,
            model_dir=model_folder(model),
            work=work_of(streams, tokens, rounds),
            arms=chosen,
            llama_server=llama_server,
            gguf=gguf,
            peer=peer,
        )
        raise typer.Exit(run_engine_bench(bench, json_file=json_file, check=check, console=Console()))


@app.command("overhead")
def overhead_command(
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    tokens: options.Tokens = 128,
    rounds: options.Rounds = 5,
) -> None:
    """What HTTP costs over the engine alone at 8 streams, the time of a warm start, and each rank's resident memory."""
    from bench.engine import EngineBench  # noqa: PLC0415
    from bench.overhead import run_overhead_bench  # noqa: PLC0415

    with one_line_errors():
        work = Work(num_streams=(8,), max_tokens=tokens, rounds=rounds, prefill_repeats=0)
        bench = EngineBench(model=model, model_dir=model_folder(model), work=work)
        raise typer.Exit(run_overhead_bench(bench, json_file=json_file, check=check, console=Console()))


@app.command("parking")
def parking_command(
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    rounds: options.Rounds = 3,
) -> None:
    """Wall time of four chats in a pool made for one, against the same four with room for all."""
    from bench.parking import run_parking_bench  # noqa: PLC0415

    with one_line_errors():
        raise typer.Exit(run_parking_bench(model, rounds=rounds, json_file=json_file, check=check, console=Console()))


proof_commands.add_to(app)


def work_of(streams: str, tokens: int, rounds: int) -> Work:
    return Work(num_streams=options.parse_streams(streams), max_tokens=tokens, rounds=rounds)
