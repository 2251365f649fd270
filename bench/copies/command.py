"""`parkade bench copies`: bandwidth of parks and restores beside a memcpy, and the gaps they leave in other streams."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from bench.bars import Bar
from bench.copies.bandwidth import COLD_PARK, PARK, RESTORE, SIZES, BandwidthSamples, measure_bandwidth
from bench.copies.gaps import CopyTimes, GapMeter, GapSamples, GapWork
from bench.engine_arm import PAGE_SIZE, EngineShape, engine_config, rank_specs
from bench.local_group import LocalGroup
from bench.prompts import PromptMaker
from bench.report import Report, exit_code
from bench.spread import Spread, paired_ratio, spread
from workers.executors import ProcessExecutor
from workers.model.config import read_model_config
from workers.model.memory import rank_bytes

MIN_BANDWIDTH_RATIO = 0.7
MAX_GAP_RATIO = 1.5
RANKS = 2
MAX_MODEL_LEN = 8192
PARTS = ("bandwidth", "gaps")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesBench:
    model: str
    model_dir: Path
    parts: tuple[str, ...] = PARTS
    sizes: tuple[int, ...] = SIZES
    rounds: int = 15
    gaps: GapWork = field(default_factory=GapWork)


def run_copies_bench(bench: CopiesBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    def tell(line: str) -> None:
        console.print(line, style="dim")

    bandwidth, gaps = None, None
    if "bandwidth" in bench.parts:
        tell(f"bandwidth of each of {RANKS} ranks, {bench.rounds} rounds")
        config = read_model_config(bench.model_dir)
        ranks = rank_bytes(config, RANKS, page_size=PAGE_SIZE, dtype="bfloat16", kv_dtype="float32")
        bandwidth = measure_bandwidth(ranks, bench.sizes, page_size=PAGE_SIZE, rounds=bench.rounds)
    if "gaps" in bench.parts:
        gaps = asyncio.run(_measure_gaps(bench, tell))
    report = make_report(bench, bandwidth, gaps)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


async def _measure_gaps(bench: CopiesBench, tell: Callable[[str], None]) -> GapSamples:
    tell(f"gaps: {bench.gaps.windows} windows of {bench.gaps.window_s:g} s with copies, as many without")
    shape = EngineShape(world_size=RANKS, num_threads=1, pool_tokens=16_384, arena_tokens=8192)
    executor = await ProcessExecutor.start(rank_specs(bench.model_dir, shape, MAX_MODEL_LEN))
    copies = CopyTimes()
    config = engine_config("gaps", shape, MAX_MODEL_LEN)
    async with LocalGroup.running(config, executor, on_event=copies.hear) as group:
        return await GapMeter(group, PromptMaker(bench.model_dir), bench.gaps, copies).measure()


def make_report(bench: CopiesBench, bandwidth: BandwidthSamples | None, gaps: GapSamples | None) -> Report:
    settings: dict[str, object] = {"model": bench.model, "rounds": bench.rounds, "gaps": asdict(bench.gaps)}
    report = Report(title="copies", settings=settings)
    if bandwidth is not None:
        add_bandwidth(report, bandwidth)
    if gaps is not None:
        add_gaps(report, gaps)
    return report


def add_bandwidth(report: Report, samples: BandwidthSamples) -> None:
    """Ratios of speeds; the bar is the worst of all sizes and ranks, warm."""
    worst: dict[str, float] = {}
    for (rank, tokens, kind), seconds in samples.copy_s.items():
        memcpy_s = samples.memcpy_s[rank, tokens, kind]
        ratio = paired_ratio(memcpy_s, seconds)
        what = f"{kind}, {tokens} tokens"
        report.add(what, f"rank {rank}", "ms", _ms(seconds))
        report.add(what, f"rank {rank} / memcpy", "of its speed", ratio)
        if kind != COLD_PARK:
            worst[kind] = min(worst.get(kind, ratio.median), ratio.median)
    report.bars += [
        Bar(name=f"{kind}: worst speed over that of memcpy, warm", value=worst[kind], bound=MIN_BANDWIDTH_RATIO)
        for kind in (PARK, RESTORE)
    ]


def add_gaps(report: Report, samples: GapSamples) -> None:
    what = "gap between tokens, p99"
    report.add(what, "while copies run", "ms", _ms(samples.with_copies))
    report.add(what, "without copies", "ms", _ms(samples.without))
    ratio = paired_ratio(samples.with_copies, samples.without)
    report.add(what, "with / without", "ratio", ratio)
    report.facts["gaps during copies, a window"] = samples.num_gaps
    report.facts["copies"] = samples.num_copies
    report.bars.append(
        Bar(name="p99 gap during copies over without", value=ratio.median, bound=MAX_GAP_RATIO, at_most=True)
    )


def _ms(seconds: list[float]) -> Spread:
    return spread([each * 1000 for each in seconds])
