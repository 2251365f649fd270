"""`parkade bench engine`: decode and prefill rates of every way to the same ranks, and of peers beside them.

In its rows, "decode" counts from when every one of n streams has its first token, "overall" from the start, and
"prefill" is one prompt's tokens over the time to its first generated token.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from bench.bars import peer_bars
from bench.engine_arm import EngineShape, engine_arm
from bench.http_arm import HttpArm
from bench.llama_server import llama_arm
from bench.prompts import PromptMaker
from bench.report import Report, exit_code
from bench.rounds import Arm, Samples, Work, run_rounds, warm_up
from bench.spread import paired_ratio, spread
from bench.subprocess_server import first_model_of, parkade_server

# Arm to (ranks, threads a rank): the same two cores, shared in two ways.
SHAPES = {"TP1": (1, 2), "TP2": (2, 1)}
HTTP_ARMS = tuple(f"HTTP {shape}" for shape in SHAPES)
ENGINE_ARMS = tuple(f"engine {shape}" for shape in SHAPES)
OWN_ARMS = HTTP_ARMS + ENGINE_ARMS
BAR_ARM = "HTTP TP2"
LLAMA, PEER = "llama.cpp", "peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBench:
    """`arms` out of `OWN_ARMS`. `llama_server` and `gguf` come together; `peer` is the URL of a running server."""

    model: str
    model_dir: Path
    work: Work
    arms: tuple[str, ...] = OWN_ARMS
    llama_server: Path | None = None
    gguf: Path | None = None
    peer: str | None = None

    @property
    def stream_tokens(self) -> int:
        """The most tokens one stream holds."""
        return max(self.work.decode_prompt_tokens + self.work.max_tokens, self.work.prefill_prompt_tokens + 1)

    @property
    def pool_tokens(self) -> int:
        """Room for all streams at once, with a page or two to spare for each."""
        return max(self.work.num_streams) * (self.stream_tokens + 32)


def run_engine_bench(bench: EngineBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    samples, names = asyncio.run(_measure(bench, console))
    report = make_report(bench, samples, names)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


async def _measure(bench: EngineBench, console: Console) -> tuple[Samples, list[str]]:
    prompts = PromptMaker(bench.model_dir)
    async with all_arms(bench, console) as arms:
        await warm_up(arms, prompts, bench.work)
        samples = await run_rounds(arms, prompts, bench.work, lambda line: console.print(line, style="dim"))
    return samples, [arm.name for arm in arms]


@contextlib.asynccontextmanager
async def all_arms(bench: EngineBench, console: Console) -> AsyncIterator[list[Arm]]:
    """Everything that is measured, started one after the other and running together; an idle arm costs no time."""
    async with contextlib.AsyncExitStack() as stack:
        arms: list[Arm] = []
        for name in bench.arms:
            console.print(f"starting {name}", style="dim")
            way, shape_name = name.split()
            ranks, threads = SHAPES[shape_name]
            if way == "engine":
                shape = EngineShape(world_size=ranks, num_threads=threads, pool_tokens=bench.pool_tokens)
                arms.append(await stack.enter_async_context(engine_arm(name, bench.model_dir, shape)))
            else:
                server = stack.enter_context(parkade_server(bench.model, *serve_options(bench, ranks, threads)))
                arms.append(HttpArm(name, server.url, server.model))
        if bench.llama_server is not None and bench.gguf is not None:
            console.print(f"starting {LLAMA}", style="dim")
            slots = {"num_slots": max(bench.work.num_streams), "slot_tokens": bench.stream_tokens, "num_threads": 2}
            arms.append(stack.enter_context(llama_arm(bench.llama_server, bench.gguf, **slots)))
        if bench.peer is not None:
            arms.append(HttpArm(PEER, bench.peer, first_model_of(bench.peer)))
        yield arms


def serve_options(bench: EngineBench, ranks: int, threads: int) -> list[str]:
    return [
        *("--tensor-parallel-size", str(ranks)),
        *("--num-threads", str(threads)),
        *("--kv-pool-tokens", str(bench.pool_tokens)),
    ]


def make_report(bench: EngineBench, samples: Samples, names: Sequence[str]) -> Report:
    report = Report(title="engine", settings={"model": bench.model, **asdict(bench.work)})
    loads = bench.work.num_streams
    for num_streams in loads:
        _add_rates(report, f"decode, n={num_streams}", {name: samples.decode[name, num_streams] for name in names})
    if samples.prefill:
        _add_rates(report, f"prefill, {bench.work.prefill_prompt_tokens}", samples.prefill)
    for num_streams in loads:
        for name in names:
            report.add(f"overall, n={num_streams}", name, "tokens/s", spread(samples.total[name, num_streams]))
    if BAR_ARM in names and LLAMA in names:
        ratios = {num_streams: samples.decode_ratio(BAR_ARM, LLAMA, num_streams).median for num_streams in loads}
        prefill = samples.prefill_ratio(BAR_ARM, LLAMA).median if samples.prefill else None
        report.bars += peer_bars(ratios, prefill)
    return report


def _add_rates(report: Report, what: str, rates: Mapping[str, Sequence[float]]) -> None:
    """Each arm's rates, then the ratios worth reading."""
    for name, values in rates.items():
        report.add(what, name, "tokens/s", spread(values))
    for above, below in pairs(list(rates)):
        report.add(what, f"{above} / {below}", "ratio", paired_ratio(rates[above], rates[below]))


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Ratios worth reading: HTTP over its engine, and every own arm over each peer."""
    own = [name for name in names if name in OWN_ARMS]
    way = [(f"HTTP {s}", f"engine {s}") for s in SHAPES if {f"HTTP {s}", f"engine {s}"} <= set(own)]
    return way + [(name, peer) for peer in (LLAMA, PEER) if peer in names for name in own]
