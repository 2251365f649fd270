"""`parkade bench overhead`: what the way from engine to client costs, how soon a server is ready, what a rank holds."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.bars import memory_bar, overhead_bar, ready_bar
from bench.engine import EngineBench, serve_options
from bench.engine_arm import PAGE_SIZE, EngineShape, engine_arm
from bench.http_arm import HttpArm
from bench.processes import descendants, processes, resident_mib
from bench.prompts import PromptMaker
from bench.report import Report, exit_code
from bench.rounds import Arm, Samples, run_rounds, warm_up
from bench.spread import spread
from bench.subprocess_server import RunningServer, ServerError, parkade_server
from workers.model.config import read_model_config
from workers.model.memory import rank_bytes

RANKS, THREADS = 2, 1
MIB = 2**20
HTTP, ENGINE = "HTTP TP2", "engine TP2"
RANK_NAMES = ("smaller rank", "larger rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """In MiB. `accounted` is weights + the whole pool; the arena is empty when this is read."""

    name: str
    resident: float
    accounted: float


def run_overhead_bench(bench: EngineBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    options = serve_options(bench, RANKS, THREADS)
    ready: list[float] = []
    for turn in range(bench.work.rounds):
        # The first start compiles and caches what is missing; only those after it are warm.
        with parkade_server(bench.model, *options) as server:
            console.print(f"start {turn + 1}: ready after {server.ready_s:.1f} s", style="dim")
            ready.append(server.ready_s)
    with parkade_server(bench.model, *options) as server:
        ready.append(server.ready_s)
        samples = asyncio.run(_measure(bench, server, console))
        memory = rank_memory(bench, server)
    report = make_report(bench, samples, ready[1:], memory)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


async def _measure(bench: EngineBench, server: RunningServer, console: Console) -> Samples:
    shape = EngineShape(world_size=RANKS, num_threads=THREADS, pool_tokens=bench.pool_tokens)
    prompts = PromptMaker(bench.model_dir)
    async with engine_arm(ENGINE, bench.model_dir, shape) as engine:
        arms: list[Arm] = [HttpArm(HTTP, server.url, server.model), engine]
        await warm_up(arms, prompts, bench.work)
        return await run_rounds(arms, prompts, bench.work, lambda line: console.print(line, style="dim"))


def rank_memory(bench: EngineBench, server: RunningServer) -> list[RankMemory]:
    """Raises `ServerError` when the rank processes cannot be told from the others."""
    pids = rank_pids(server.pid)
    if len(pids) != RANKS:
        raise ServerError(f"{len(pids)} rank processes found under process {server.pid}, {RANKS} expected")
    config = read_model_config(bench.model_dir)
    sizes = rank_bytes(config, RANKS, page_size=PAGE_SIZE, dtype="bfloat16", kv_dtype="float32")
    num_pages = bench.pool_tokens // PAGE_SIZE
    # Which process is which rank does not show; the larger is held against the larger account.
    resident = sorted(resident_mib(pid) for pid in pids)
    accounts = sorted((size.weights + num_pages * size.page) / MIB for size in sizes)
    return [
        RankMemory(name=name, resident=held, accounted=account)
        for name, held, account in zip(RANK_NAMES, resident, accounts, strict=True)
    ]


def rank_pids(server_pid: int) -> list[int]:
    """Ray names a worker's process after the actor it holds."""
    family = descendants(server_pid, processes())
    return [process.pid for process in family if process.command.startswith("ray::Rank")]


def make_report(bench: EngineBench, samples: Samples, ready_s: list[float], memory: list[RankMemory]) -> Report:
    report = Report(title="overhead", settings={"model": bench.model, "rounds": bench.work.rounds})
    for num_streams in bench.work.num_streams:
        load = f"decode, n={num_streams}"
        for name in (HTTP, ENGINE):
            report.add(load, name, "tokens/s", spread(samples.decode[name, num_streams]))
        ratio = samples.decode_ratio(HTTP, ENGINE, num_streams)
        report.add(load, f"{HTTP} / {ENGINE}", "ratio", ratio)
        report.bars.append(overhead_bar(ratio.median, num_streams))
    report.add("warm start until ready", "parkade serve", "s", spread(ready_s))
    report.bars.append(ready_bar(spread(ready_s).median))
    for rank in memory:
        report.add("resident memory", rank.name, "MiB", spread([rank.resident]))
        report.add("weights + pool", rank.name, "MiB", spread([rank.accounted]))
        report.bars.append(memory_bar(rank.name, rank.resident, rank.accounted))
    return report
