"""Eight streams of 64 + 300 tokens in a pool of 1,408 tokens, beside the same work in a pool with room, in turns."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.bars import Bar
from bench.http_arm import HttpArm
from bench.prompts import Prompt, PromptMaker
from bench.report import Report
from bench.rounds import Arm, run_together, turned
from bench.spread import paired_ratio, spread
from bench.streams import StreamRecord, longest_gap
from bench.subprocess_server import parkade_server

NUM_STREAMS, PROMPT_TOKENS, ANSWER_TOKENS = 8, 64, 300
TIGHT, ROOM = "pool of 1,408", "pool with room"
POOLS = {TIGHT: 1408, ROOM: 4096}
# Peers on the reference machine: transformers' offload 1.40, its re-prefill 1.47, vLLM 1.58, OpenVINO 1.67.
WALL_RATIO = 1.40
# The ratio is a median; over fewer pairs than these it is luck.
MIN_ROUNDS = 5


@dataclass(slots=True)
class SmallSamples:
    """By pool, one entry a round: wall time of all streams and the longest gap between tokens of any, in seconds."""

    wall_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in POOLS})
    gap_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in POOLS})
    num_ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(POOLS, 0))

    def add(self, name: str, records: Sequence[StreamRecord]) -> None:
        self.wall_s[name].append(max(record.ended for record in records) - min(record.started for record in records))
        self.gap_s[name].append(max(map(longest_gap, records)))
        self.num_ended[name] += len(records)


class ManyPrompts(Protocol):
    """Where prompts of an exact length come from."""

    def make_many(self, count: int, num_tokens: int) -> list[Prompt]: ...


async def measure_small(model: str, model_dir: Path, *, rounds: int, progress: Callable[[str], None]) -> SmallSamples:
    """Raises `StreamError` when a stream ends short: then nothing is to be compared."""
    samples = SmallSamples()
    prompts = PromptMaker(model_dir)
    with contextlib.ExitStack() as stack:
        arms = []
        for name, pool_tokens in POOLS.items():
            progress(f"small: starting a server, {name}")
            options = ("--tensor-parallel-size", "2", "--kv-pool-tokens", str(pool_tokens))
            server = stack.enter_context(parkade_server(model, *options))
            arms.append(HttpArm(name, server.url, server.model))
        await small_rounds(arms, prompts, samples, rounds=rounds, progress=progress)
    return samples


async def small_rounds(
    arms: Sequence[Arm],
    prompts: ManyPrompts,
    samples: SmallSamples,
    *,
    rounds: int,
    progress: Callable[[str], None],
) -> None:
    """Both arms get the same prompts in a round, and others in the next. One round before counts nothing."""
    for turn in range(-1, rounds):
        asked = prompts.make_many(NUM_STREAMS, PROMPT_TOKENS)
        for arm in turned(arms, turn):
            progress(f"small: round {turn + 1} of {rounds}: {arm.name}")
            records = await run_together(arm, asked, ANSWER_TOKENS)
            if turn >= 0:
                samples.add(arm.name, records)


def add_small(report: Report, samples: SmallSamples) -> None:
    """Rows and bars."""
    what = f"small: {NUM_STREAMS} streams of {PROMPT_TOKENS} + {ANSWER_TOKENS}"
    for name in POOLS:
        report.add(f"{what}, wall time", name, "s", spread(samples.wall_s[name]))
    ratio = paired_ratio(samples.wall_s[TIGHT], samples.wall_s[ROOM])
    report.add(f"{what}, wall time", f"{TIGHT} / {ROOM}", "ratio", ratio)
    for name in POOLS:
        report.add(f"{what}, longest silence", name, "s", spread(samples.gap_s[name]))
    asked = NUM_STREAMS * len(samples.wall_s[TIGHT])
    report.bars += [
        Bar(name="small: pairs", value=len(ratio.samples), bound=MIN_ROUNDS),
        Bar(name="small: streams that ended in full", value=samples.num_ended[TIGHT], bound=asked),
        Bar(name="small: wall time over that with room", value=ratio.median, bound=WALL_RATIO, at_most=True),
    ]
