"""`parkade bench idle-cost`: one stream alone, with parking on and off, in pairs: what parking costs when nobody parks.

From the engine alone, on two ranks. The ranks of both arms are started anew several times, in turns first and second,
because where a process lies in memory is worth a percent, and would be taken for a cost of parking. Pairs are short and
many: on a shared machine one differs by some 6 %, and the bar is one.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bench.bars import Bar
from bench.engine_arm import EngineShape, engine_arm
from bench.prompts import PromptMaker
from bench.report import Report, exit_code
from bench.rounds import Arm, Prompts, turned
from bench.spread import paired_ratio, spread
from bench.streams import decode_rate

ON, OFF = "parking on", "parking off"
MIN_RATIO = 0.99
MIN_PAIRS = 10
POOL_TOKENS, ARENA_TOKENS = 8192, 16_384
SHAPES = {
    ON: EngineShape(world_size=2, num_threads=1, pool_tokens=POOL_TOKENS, arena_tokens=ARENA_TOKENS),
    OFF: EngineShape(world_size=2, num_threads=1, pool_tokens=POOL_TOKENS, park=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCostBench:
    """`starts` times the ranks of both arms are started; each time `pairs` pairs are measured."""

    model: str
    model_dir: Path
    starts: int = 4
    pairs: int = 48
    prompt_tokens: int = 64
    answer_tokens: int = 64


@dataclass(slots=True)
class IdleSamples:
    """Decode rates in tokens/s, one a pair."""

    rates: dict[str, list[float]] = field(default_factory=lambda: {ON: [], OFF: []})


def run_idle_cost_bench(bench: IdleCostBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    samples = asyncio.run(_measure(bench, lambda line: console.print(line, style="dim")))
    report = make_report(bench, samples)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


async def _measure(bench: IdleCostBench, tell: Callable[[str], None]) -> IdleSamples:
    samples = IdleSamples()
    prompts = PromptMaker(bench.model_dir)
    for start in range(bench.starts):
        tell(f"start {start + 1} of {bench.starts}")
        async with contextlib.AsyncExitStack() as stack:
            arms: list[Arm] = []
            for name in (ON, OFF) if start % 2 else (OFF, ON):
                arms.append(await stack.enter_async_context(engine_arm(name, bench.model_dir, SHAPES[name])))
            await pairs_of(arms, prompts, bench, samples)
    return samples


async def pairs_of(arms: Sequence[Arm], prompts: Prompts, bench: IdleCostBench, samples: IdleSamples) -> None:
    """One pair to warm up, then those that count; who goes first turns."""
    for pair in range(-1, bench.pairs):
        prompt = prompts.make(bench.prompt_tokens)
        for arm in turned(arms, pair % len(arms)):
            rate = decode_rate([await arm.stream(prompt, bench.answer_tokens)])
            if pair >= 0:
                samples.rates[arm.name].append(rate)


def make_report(bench: IdleCostBench, samples: IdleSamples) -> Report:
    settings: dict[str, object] = {
        "model": bench.model,
        "starts": bench.starts,
        "pairs a start": bench.pairs,
        "prompt_tokens": bench.prompt_tokens,
        "answer_tokens": bench.answer_tokens,
    }
    report = Report(title="idle-cost", settings=settings)
    what = "decode, one stream"
    for name in (ON, OFF):
        report.add(what, name, "tokens/s", spread(samples.rates[name]))
    ratio = paired_ratio(samples.rates[ON], samples.rates[OFF])
    report.add(what, f"{ON} / {OFF}", "ratio", ratio)
    report.bars += [
        Bar(name="throughput with parking on over off", value=ratio.median, bound=MIN_RATIO),
        Bar(name="pairs", value=len(ratio.samples), bound=MIN_PAIRS),
    ]
    return report
