"""`parkade bench soak`: requests of all kinds at once on a small pool, and a server that is then as it was before."""

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console

from bench.report import exit_code
from bench.soak.errand import Errand, SoakBounds, draw_errands
from bench.soak.gauges import Gauges, metric_problems, read_gauges
from bench.soak.report import SoakResult, arena_bars, make_report, task_bars
from bench.soak.texts import contradictions
from bench.soak.visitor import Visit, Visitor
from bench.subprocess_server import RunningServer, parkade_server
from bench.tiny_model import TinyModel, vocab_size_of, write_tiny_model

POOL_TOKENS, MAX_MODEL_LEN, HOST_RAM = 2048, 512, "4MiB"
MAX_RUNNING = 16
REST_PATIENCE_S = 60.0
REST_POLL_S = 1.0
# Twice what the metrics page may be behind; arenas have given their memory back by then too.
SETTLED_S = 20.0
# Before the first look: what is opened once, and for good, is then open.
WARM_UP = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakBench:
    """`tokenizer_dir` is a model folder whose tokenizer the tiny model borrows."""

    tokenizer_dir: Path
    requests: int = 2000
    concurrency: int = 32
    seed: int = 0


def run_soak_bench(bench: SoakBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    def tell(line: str) -> None:
        console.print(line, style="dim")

    with tempfile.TemporaryDirectory(prefix="parkade-bench-") as scratch:
        model = TinyModel(vocab_size=vocab_size_of(bench.tokenizer_dir), max_positions=MAX_MODEL_LEN)
        folder = write_tiny_model(Path(scratch) / "tiny", model, tokenizer_dir=bench.tokenizer_dir)
        tell("starting a server with a tiny model")
        with parkade_server(str(folder), *server_options()) as server:
            result = asyncio.run(_soak(bench, server, tell))
    settings: dict[str, object] = {
        "requests": bench.requests,
        "concurrency": bench.concurrency,
        "seed": bench.seed,
        "server": server_options(),
    }
    report = make_report(settings, result)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


def server_options() -> list[str]:
    return [
        *("--tensor-parallel-size", "2", "--kv-pool-tokens", str(POOL_TOKENS)),
        *("--max-model-len", str(MAX_MODEL_LEN), "--max-running", str(MAX_RUNNING), "--host-ram", HOST_RAM),
    ]


async def _soak(bench: SoakBench, server: RunningServer, tell: Callable[[str], None]) -> SoakResult:
    bounds = SoakBounds(vocab_size=vocab_size_of(bench.tokenizer_dir))
    async with visiting(server) as visitor:
        await run_errands(visitor, draw_errands(WARM_UP, bounds, bench.seed + 1_000_000), bench.concurrency)
    before, _ = await at_rest(server)
    tell(f"{bench.requests} requests, {bench.concurrency} at once")
    started = time.monotonic()
    async with visiting(server) as visitor:
        visits = await run_errands(visitor, draw_errands(bench.requests, bounds, bench.seed), bench.concurrency, tell)
    wall_s = time.monotonic() - started
    after, rest_s = await at_rest(server, like=before)
    return SoakResult(
        visits=visits, before=before, after=after, wall_s=wall_s, rest_s=rest_s, contradictions=contradictions(visits)
    )


@contextlib.asynccontextmanager
async def visiting(server: RunningServer) -> AsyncIterator[Visitor]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
    async with httpx.AsyncClient(limits=limits, trust_env=False) as client:
        yield Visitor(client, server.url, server.model)


async def run_errands(
    visitor: Visitor, errands: Sequence[Errand], concurrency: int, tell: Callable[[str], None] | None = None
) -> list[Visit]:
    """As many at once; a new one as soon as one has ended."""
    to_come = iter(errands)
    visits: list[Visit] = []

    async def worker() -> None:
        for errand in to_come:
            visits.append(await visitor.visit(errand))
            if tell is not None and len(visits) % max(1, len(errands) // 4) == 0:
                faults = Counter(visit.fault for visit in visits if visit.fault)
                tell(f"{len(visits)} of {len(errands)} have ended, {faults.total()} with a fault")

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return visits


async def at_rest(server: RunningServer, like: Gauges | None = None) -> tuple[Gauges, float]:
    """The gauges once they show rest, or as they are after a minute of patience; and the seconds that took.

    Without `like` nobody asks for anything for some seconds before: what is told is then what an idle server tells.
    With it, rest also means no more memory in arenas and no more tasks than there.
    """
    if like is None:
        await asyncio.sleep(SETTLED_S)
    started = time.monotonic()
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            gauges = await read_gauges(client, server.url, server.pid)
            waited_s = time.monotonic() - started
            if is_at_rest(gauges, like) or waited_s > REST_PATIENCE_S:
                return gauges, waited_s
            await asyncio.sleep(REST_POLL_S)


def is_at_rest(gauges: Gauges, like: Gauges | None) -> bool:
    if gauges.books or metric_problems(gauges.metrics):
        return False
    return like is None or all(bar.held for bar in (*task_bars(like, gauges), *arena_bars(like, gauges)))
