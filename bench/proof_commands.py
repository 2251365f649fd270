"""The commands of `parkade bench` that show what parking promises, and what it costs.

What measures is imported by the command that runs it: `parkade --help` must not wait for compilers.
"""

from typing import Annotated

import typer
from rich.console import Console

from bench import options
from bench.failing import one_line_errors
from bench.options import model_folder


def add_to(app: typer.Typer) -> None:
    """Make them commands of `app`."""
    for name, command in (
        ("pressure", pressure),
        ("boundary", boundary),
        ("exactness", exactness),
        ("idle-cost", idle_cost),
        ("copies", copies),
        ("order", order),
        ("soak", soak),
    ):
        app.command(name)(command)


def pressure(
    *,
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    rounds: options.Rounds = 3,
    small_rounds: Annotated[int, typer.Option(min=1, help="Pairs of the eight small streams.")] = 7,
    part: Annotated[str, typer.Option(help="Parts, out of 8k, 16k and small.")] = "8k,16k,small",
    scale: options.Scale = 1.0,
) -> None:
    """Four chats that need more than the pool: parked, recomputed, one after another, and refused without parking.

    In pools of 8,192 and 16,384 tokens; and eight short streams in a pool of 1,408 against a pool with room.
    """
    from bench.pressure import ALL_PARTS, PressureBench, run_pressure_bench  # noqa: PLC0415

    parts = options.parse_parts(part, ALL_PARTS)
    with one_line_errors():
        bench = PressureBench(
            model=model,
            model_dir=model_folder(model),
            parts=parts,
            rounds=rounds,
            small_rounds=small_rounds,
            scale=scale,
        )
        raise typer.Exit(run_pressure_bench(bench, json_file=json_file, check=check, console=Console()))


def boundary(
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    pool_tokens: Annotated[int, typer.Option(min=512, help="Of the pool, and of each request.")] = 8192,
) -> None:
    """Four separate requests at once, each as long as the whole pool, each as it is alone."""
    from bench.boundary import BoundaryBench, run_boundary_bench  # noqa: PLC0415

    with one_line_errors():
        bench = BoundaryBench(model=model, model_dir=model_folder(model), pool_tokens=pool_tokens)
        raise typer.Exit(run_boundary_bench(bench, json_file=json_file, check=check, console=Console()))


def exactness(
    *,
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    part: Annotated[str, typer.Option(help="Parts, out of forced, beside, http, tiny and model.")] = (
        "forced,beside,http,tiny,model"
    ),
    ranks: Annotated[str, typer.Option(metavar="N,N,...", help="Tensor-parallel ranks.")] = "1,2",
    tiny_schedules: Annotated[int, typer.Option(min=1, help="Random schedules on a tiny model.")] = 200,
    model_schedules: Annotated[int, typer.Option(min=1, help="Random schedules on the model.")] = 20,
    first_seed: Annotated[int, typer.Option(min=0, help="Of the random schedules.")] = 0,
    scale: options.Scale = 1.0,
) -> None:
    """Every stream against its solo run: forced parks, one parked beside others, and random schedules."""
    from bench.exactness.command import PARTS, ExactnessBench, run_exactness_bench  # noqa: PLC0415
    from bench.exactness.forced import Forced  # noqa: PLC0415

    parts, numbers = options.parse_parts(part, PARTS), options.parse_sizes(ranks, 2)
    with one_line_errors():
        bench = ExactnessBench(
            model=model,
            model_dir=model_folder(model),
            parts=parts,
            ranks=numbers,
            tiny_schedules=tiny_schedules,
            model_schedules=model_schedules,
            first_seed=first_seed,
            sizes=Forced().scaled(scale),
        )
        raise typer.Exit(run_exactness_bench(bench, json_file=json_file, check=check, console=Console()))


def idle_cost(
    *,
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    starts: Annotated[int, typer.Option(min=1, help="How often the ranks are started anew.")] = 4,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs measured after each start.")] = 48,
    tokens: options.Tokens = 64,
) -> None:
    """One stream alone with parking on and off, in pairs: what parking costs when nobody parks."""
    from bench.idle_cost import IdleCostBench, run_idle_cost_bench  # noqa: PLC0415

    with one_line_errors():
        bench = IdleCostBench(
            model=model, model_dir=model_folder(model), starts=starts, pairs=pairs, answer_tokens=tokens
        )
        raise typer.Exit(run_idle_cost_bench(bench, json_file=json_file, check=check, console=Console()))


def copies(
    *,
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    part: Annotated[str, typer.Option(help="Parts, out of bandwidth and gaps.")] = "bandwidth,gaps",
    sizes: Annotated[str, typer.Option(metavar="N,N,...", help="Tokens copied.")] = "100,500,1000,2000,4000,8000",
    rounds: options.Rounds = 15,
    windows: Annotated[int, typer.Option(min=1, help="Pairs of windows in which gaps are measured.")] = 8,
    window_s: Annotated[float, typer.Option("--window", min=0.5, help="Seconds of each.")] = 6.0,
) -> None:
    """Parks and restores of each rank beside a memcpy, and the gaps between other streams' tokens meanwhile."""
    from bench.copies.command import PARTS, CopiesBench, run_copies_bench  # noqa: PLC0415
    from bench.copies.gaps import GapWork  # noqa: PLC0415

    parts, tokens = options.parse_parts(part, PARTS), options.parse_sizes(sizes, 65_536)
    with one_line_errors():
        bench = CopiesBench(
            model=model,
            model_dir=model_folder(model),
            parts=parts,
            sizes=tokens,
            rounds=rounds,
            gaps=GapWork(windows=windows, window_s=window_s),
        )
        raise typer.Exit(run_copies_bench(bench, json_file=json_file, check=check, console=Console()))


def order(
    json_file: options.JsonFile = None,
    check: options.Check = False,
    seeds: Annotated[int, typer.Option(min=1, help="Sets of chats.")] = 60,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Simulations at once.")] = 2,
) -> None:
    """Simulated: the longest wait and the makespan, by how strictly the parked come back in line.

    Of eight uneven chats, and of a big one that a stream of small ones could pass for ever.
    """
    from bench.order.command import OrderBench, run_order_bench  # noqa: PLC0415

    with one_line_errors():
        bench = OrderBench(seeds=seeds, processes=processes)
        raise typer.Exit(run_order_bench(bench, json_file=json_file, check=check, console=Console()))


def soak(
    *,
    model: Annotated[str, typer.Option(help="Whose tokenizer the tiny model gets.")] = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    check: options.Check = False,
    requests: Annotated[int, typer.Option(min=1, help="How many in all.")] = 2000,
    concurrency: Annotated[int, typer.Option(min=1, max=512, help="How many at once.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Of what is asked and done.")] = 0,
) -> None:
    """Requests that are cancelled, parked, left and reordered at random, and a server that is then as it was."""
    from bench.soak.command import SoakBench, run_soak_bench  # noqa: PLC0415

    with one_line_errors():
        bench = SoakBench(tokenizer_dir=model_folder(model), requests=requests, concurrency=concurrency, seed=seed)
        raise typer.Exit(run_soak_bench(bench, json_file=json_file, check=check, console=Console()))
