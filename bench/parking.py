"""`parkade bench parking`: the same four chats in a pool made for one and in a pool with room, in turns."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.console import Console

from bench.bars import Bar
from bench.chat import ChatRun
from bench.four_chats import CHAT_TOKENS, POOL_TOKENS, sized_chats
from bench.race import at_once
from bench.report import Report, exit_code
from bench.spread import paired_ratio, spread
from bench.subprocess_server import RunningServer, parkade_server
from bench.verdict import is_whole

ROOM_TOKENS = 4096
TIGHT, ROOM = "parking", "room"
POOLS = {TIGHT: POOL_TOKENS, ROOM: ROOM_TOKENS}


@dataclass(slots=True)
class ParkingSamples:
    """By arm, one entry a round: wall time of all four in seconds, parks of all four, and the runs themselves."""

    wall_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in POOLS})
    parks: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in POOLS})
    runs: dict[str, list[list[ChatRun]]] = field(default_factory=lambda: {name: [] for name in POOLS})

    def add(self, name: str, runs: list[ChatRun]) -> None:
        self.wall_s[name].append(max(run.ended or 0.0 for run in runs) - min(run.started for run in runs))
        self.parks[name].append(sum(run.parks for run in runs))
        self.runs[name].append(runs)


def run_parking_bench(model: str, *, rounds: int, json_file: Path | None, check: bool, console: Console) -> int:
    with contextlib.ExitStack() as stack:
        servers = {}
        for name, pool_tokens in POOLS.items():
            console.print(f"starting a server with a pool of {pool_tokens} tokens", style="dim")
            options = ("--tensor-parallel-size", "2", "--kv-pool-tokens", str(pool_tokens))
            servers[name] = stack.enter_context(parkade_server(model, *options))
        samples = asyncio.run(_measure(servers, rounds, console))
    report = make_report(model, samples)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


async def _measure(servers: dict[str, RunningServer], rounds: int, console: Console) -> ParkingSamples:
    samples = ParkingSamples()
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), trust_env=False) as client:
        first = servers[TIGHT]
        chats = await sized_chats(client, first.url, first.model)
        for turn in range(rounds):
            for name in sorted(servers, reverse=bool(turn % 2)):
                console.print(f"round {turn + 1} of {rounds}: {name}", style="dim")
                samples.add(name, list((await at_once(client, servers[name], chats)).runs))
    return samples


def make_report(model: str, samples: ParkingSamples) -> Report:
    settings: dict[str, object] = {"model": model, "chat_tokens": CHAT_TOKENS, "pools": POOLS}
    report = Report(title="parking", settings=settings)
    for name in POOLS:
        report.add("four chats, wall time", name, "s", spread(samples.wall_s[name]))
        report.add("four chats, parks", name, "parks", spread([float(parks) for parks in samples.parks[name]]))
    ratio = paired_ratio(samples.wall_s[TIGHT], samples.wall_s[ROOM])
    report.add("four chats, wall time", f"{TIGHT} / {ROOM}", "ratio", ratio)
    every = [run for name in POOLS for runs in samples.runs[name] for run in runs]
    texts = {(run.chat.name, run.text) for run in every}
    names = {run.chat.name for run in every}
    whole = sum(is_whole(run) for run in every)
    report.bars += [
        Bar(name="chats that ended in full", value=whole, bound=len(every)),
        Bar(name="different texts of one chat, at most one each", value=len(texts), bound=len(names), at_most=True),
        Bar(name="parks in the pool with room", value=max(samples.parks[ROOM]), bound=0, at_most=True),
        Bar(name="parks in the tight pool", value=min(samples.parks[TIGHT]), bound=1),
    ]
    return report
