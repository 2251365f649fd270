"""`parkade bench pressure`: work that does not fit the pool, parked, recomputed, one by one, and refused."""

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from bench.pressure_chats import PARTS, PressureSamples, add_chats, measure_chats
from bench.report import Report, exit_code
from bench.small_streams import SmallSamples, add_small, measure_small

SMALL = "small"
ALL_PARTS = (*PARTS, SMALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureBench:
    """`scale` shrinks pools, prompts and answers of the four chats alike: for a quick look, not for figures."""

    model: str
    model_dir: Path
    parts: tuple[str, ...] = ALL_PARTS
    rounds: int = 3
    small_rounds: int = 7
    scale: float = 1.0


def run_pressure_bench(bench: PressureBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    chats: dict[str, PressureSamples] = {}
    small: SmallSamples | None = None

    def tell(line: str) -> None:
        console.print(line, style="dim")

    for name in bench.parts:
        if name == SMALL:
            work = measure_small(bench.model, bench.model_dir, rounds=bench.small_rounds, progress=tell)
            small = asyncio.run(work)
        else:
            part = PARTS[name].scaled(bench.scale)
            chats[name] = asyncio.run(
                measure_chats(part, bench.model, bench.model_dir, rounds=bench.rounds, progress=tell)
            )
    report = make_report(bench, chats, small)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


def make_report(bench: PressureBench, chats: dict[str, PressureSamples], small: SmallSamples | None) -> Report:
    settings: dict[str, object] = {"model": bench.model, "rounds": bench.rounds, "scale": bench.scale}
    settings["parts"] = {name: asdict(PARTS[name].scaled(bench.scale)) for name in chats}
    report = Report(title="pressure", settings=settings)
    for name, samples in chats.items():
        add_chats(report, PARTS[name].scaled(bench.scale), samples)
    if small is not None:
        settings["small_rounds"] = bench.small_rounds
        add_small(report, small)
    return report
