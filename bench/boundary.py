"""`parkade bench boundary`: four requests at once, each to one token less than the pool has slots, then one more.

A request's last token needs no slot, because nothing comes after it: a pool of 8,192 tokens takes 8,192 tokens of one
request while 8,191 are resident. Four of them need four pools. Two begin with nearly all of their tokens and wait for
each other in the queue; two begin with half a pool, run together, and have to park for each other.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console

from bench.bars import Bar
from bench.chat import Chat
from bench.race import Race, at_once, one_by_one
from bench.report import Report, exit_code
from bench.spread import spread
from bench.subprocess_server import RunningServer, parkade_server
from bench.tiny_model import vocab_size_of

NUM_REQUESTS = 4
# Ids below are often special tokens.
FIRST_ID = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryBench:
    """Sizes in tokens; each request has `pool_tokens` in all, prompt and answer."""

    model: str
    model_dir: Path
    pool_tokens: int = 8192

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """Of each request."""
        nearly_all, half = self.pool_tokens - 292, self.pool_tokens // 2 - 196
        return nearly_all, nearly_all, half, half

    def requests(self, seed: int = 0) -> list[Chat]:
        """Random token ids: only their number matters."""
        draw = random.Random(seed)
        vocab_size = vocab_size_of(self.model_dir)
        return [
            Chat(
                name=f"request {number}",
                prompt=tuple(draw.randrange(FIRST_ID, vocab_size) for _ in range(num_tokens)),
                max_tokens=self.pool_tokens - num_tokens,
            )
            for number, num_tokens in enumerate(self.prompt_tokens, start=1)
        ]


def run_boundary_bench(bench: BoundaryBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    options = (
        *("--tensor-parallel-size", "2"),
        *("--kv-pool-tokens", str(bench.pool_tokens)),
        *("--max-model-len", str(bench.pool_tokens)),
    )
    console.print(f"starting a server with a pool of {bench.pool_tokens} tokens", style="dim")
    with parkade_server(bench.model, *options) as server:
        alone, together = asyncio.run(_measure(bench, server, lambda line: console.print(line, style="dim")))
    report = make_report(bench, alone, together)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


async def _measure(bench: BoundaryBench, server: RunningServer, progress: Callable[[str], None]) -> tuple[Race, Race]:
    requests = bench.requests()
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), trust_env=False) as client:
        progress(f"each of {NUM_REQUESTS} requests alone")
        alone = await one_by_one(client, server, requests)
        progress(f"all {NUM_REQUESTS} at once")
        return alone, await at_once(client, server, requests)


def make_report(bench: BoundaryBench, alone: Race, together: Race) -> Report:
    settings: dict[str, object] = {
        "model": bench.model,
        "pool_tokens": bench.pool_tokens,
        "prompt_tokens": bench.prompt_tokens,
    }
    report = Report(title="boundary", settings=settings)
    for who, race in (("alone, one by one", alone), ("at once", together)):
        totals = [float(run.prompt_tokens + run.completion_tokens) for run in race.runs]
        report.add("tokens of a request", who, "tokens", spread(totals))
        report.add("wall time", who, "s", spread([race.wall_s]))
    report.add("parks", "at once", "parks", spread([float(together.parks)]))
    report.add("recomputed", "at once", "parks", spread([float(together.recomputes)]))
    report.facts["errors"] = [run.error for race in (alone, together) for run in race.runs if run.error]
    report.bars += boundary_bars(bench, alone, together)
    return report


def boundary_bars(bench: BoundaryBench, alone: Race, together: Race) -> list[Bar]:
    full = sum(run.prompt_tokens + run.completion_tokens == bench.pool_tokens for run in together.runs)
    pairs = zip(alone.runs, together.runs, strict=True)
    same = sum(solo.text == run.text and len(run.text) > 0 for solo, run in pairs)
    return [
        Bar(name="requests that ended in full", value=together.num_whole, bound=NUM_REQUESTS),
        Bar(name=f"requests of exactly {bench.pool_tokens} tokens", value=full, bound=NUM_REQUESTS),
        Bar(name="requests whose text is that of their solo run", value=same, bound=alone.num_whole or NUM_REQUESTS),
        Bar(name="solo runs that ended in full", value=alone.num_whole, bound=NUM_REQUESTS),
        Bar(name="parks", value=together.parks, bound=1),
        Bar(name="parks by recompute", value=together.recomputes, bound=0, at_most=True),
    ]
