"""Four chats that together need more than the pool, on servers that answer the overflow in different ways, in turns.

The lengths are uneven, as those of chats are. The urgent one is neither the longest nor the shortest: two shorter ones,
that are parked meanwhile, end after it, and the longest, that the policy protects, because it is longer.

Arms: parking; recompute-only (no host RAM to park in); one after another on the parking server; and, once, without
parking, where chats fail: that is shown, and no bar.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from bench.bars import Bar
from bench.chat import Chat
from bench.prompts import PromptMaker
from bench.race import Race, at_once, one_by_one, texts_differing
from bench.report import Report
from bench.rounds import turned
from bench.spread import paired_ratio, spread
from bench.subprocess_server import RunningServer, parkade_server

PARKING, RECOMPUTE, SERIAL, NO_PARK = "parking", "recompute only", "one after another", "no parking"
ARMS = (PARKING, RECOMPUTE, SERIAL, NO_PARK)
# The arms whose chats must all end in full.
BARRED = (PARKING, RECOMPUTE, SERIAL)
TOGETHER = (PARKING, RECOMPUTE)
SERVER_FLAGS = {PARKING: (), RECOMPUTE: ("--host-ram", "0"), NO_PARK: ("--no-park",)}
URGENT, URGENT_PRIORITY = "south", 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PressurePart:
    """One pool and its chats, all sizes in tokens: prompt and answer by name. The chat template adds to the prompt."""

    name: str
    pool_tokens: int
    max_model_len: int
    sizes: Mapping[str, tuple[int, int]]

    @property
    def num_tokens(self) -> int:
        """Of all chats together."""
        return sum(prompt + answer for prompt, answer in self.sizes.values())

    def scaled(self, scale: float) -> "PressurePart":
        return replace(
            self,
            pool_tokens=int(self.pool_tokens * scale),
            max_model_len=int(self.max_model_len * scale),
            sizes={name: (int(prompt * scale), int(answer * scale)) for name, (prompt, answer) in self.sizes.items()},
        )

    def chats(self, prompts: PromptMaker) -> list[Chat]:
        return [
            Chat(
                name=name,
                question=prompts.make(prompt).text,
                max_tokens=answer,
                priority=URGENT_PRIORITY if name == URGENT else 0,
            )
            for name, (prompt, answer) in self.sizes.items()
        ]


PARTS = {
    "8k": PressurePart(
        name="8k",
        pool_tokens=8192,
        max_model_len=8192,
        sizes={"north": (1100, 2100), "east": (1000, 1800), "south": (1000, 1850), "west": (950, 1750)},
    ),
    # A single chat stays below the model's own 8,192 positions. Long prompts, as of chats that have gone on for a
    # while: three of them nearly fill the pool, and the fourth waits until there is room.
    "16k": PressurePart(
        name="16k",
        pool_tokens=16_384,
        max_model_len=8192,
        sizes={"north": (4900, 1000), "east": (4800, 800), "south": (4800, 850), "west": (4700, 780)},
    ),
}


@dataclass(slots=True)
class PressureSamples:
    """Races by arm, one a round."""

    races: dict[str, list[Race]] = field(default_factory=lambda: {arm: [] for arm in ARMS})

    def walls(self, arm: str) -> list[float]:
        return [race.wall_s for race in self.races[arm]]


async def measure_chats(
    part: PressurePart, model: str, model_dir: Path, *, rounds: int, progress: Callable[[str], None]
) -> PressureSamples:
    """Start the servers of one part, run all rounds, end them."""
    samples = PressureSamples()
    chats = part.chats(PromptMaker(model_dir))
    with contextlib.ExitStack() as stack:
        servers = {}
        for arm, flags in SERVER_FLAGS.items():
            progress(f"{part.name}: starting a server, {arm}")
            servers[arm] = stack.enter_context(parkade_server(model, *server_options(part), *flags))
        servers[SERIAL] = servers[PARKING]
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), trust_env=False) as client:
            for server in {server.url: server for server in servers.values()}.values():
                await at_once(client, server, [replace(chats[0], max_tokens=2)])  # warm, unmeasured
            progress(f"{part.name}: once: {NO_PARK}")
            samples.races[NO_PARK].append(await _race(client, NO_PARK, servers[NO_PARK], chats))
            for turn in range(rounds):
                for arm in turned(BARRED, turn):
                    progress(f"{part.name}: round {turn + 1} of {rounds}: {arm}")
                    samples.races[arm].append(await _race(client, arm, servers[arm], chats))
    return samples


async def _race(client: httpx.AsyncClient, arm: str, server: RunningServer, chats: Sequence[Chat]) -> Race:
    return await (one_by_one if arm == SERIAL else at_once)(client, server, chats)


def server_options(part: PressurePart) -> list[str]:
    return [
        *("--tensor-parallel-size", "2"),
        *("--kv-pool-tokens", str(part.pool_tokens)),
        *("--max-model-len", str(part.max_model_len)),
    ]


def add_chats(report: Report, part: PressurePart, samples: PressureSamples) -> None:
    """Rows and bars of one part."""
    what = f"{part.name}: four chats"
    for arm in ARMS:
        report.add(f"{what}, makespan", arm, "s", spread(samples.walls(arm)))
    for arm in (RECOMPUTE, SERIAL):
        ratio = paired_ratio(samples.walls(PARKING), samples.walls(arm))
        report.add(f"{what}, makespan", f"{PARKING} / {arm}", "ratio", ratio)
    for arm in ARMS:
        races = samples.races[arm]
        report.add(f"{what}, ended in full", arm, "of 4", spread([float(race.num_whole) for race in races]))
    for arm in TOGETHER:
        races = samples.races[arm]
        report.add(f"{what}, parks", arm, "parks", spread([float(race.parks) for race in races]))
        report.add(f"{what}, recomputed", arm, "parks", spread([float(race.recomputes) for race in races]))
    failures = sorted({run.error for race in samples.races[NO_PARK] for run in race.runs if run.error})
    report.facts[f"{part.name}: what chats were told without parking"] = failures
    report.bars += chat_bars(part, samples)


def chat_bars(part: PressurePart, samples: PressureSamples) -> list[Bar]:
    """All end in full, say the same, and the urgent one is never parked and ends first; and the pool did overflow.

    Parking copied all that it parked, and the recompute-only arm recomputed.
    """
    bars = []
    for arm in BARRED:
        races = samples.races[arm]
        asked = sum(len(race.runs) for race in races)
        whole = sum(race.num_whole for race in races)
        bars.append(Bar(name=f"{part.name}, {arm}: chats that ended in full", value=whole, bound=asked))
    for arm in TOGETHER:
        races = samples.races[arm]
        urgent_parks = sum(
            max(run.parks, run.parks_seen) for race in races for run in race.runs if _is_urgent(run.chat)
        )
        first = sum(_is_urgent(race.first.chat) for race in races)
        name = f"{part.name}, {arm}: "
        bars += [
            Bar(name=name + "parks of the chat of priority 10", value=urgent_parks, bound=0, at_most=True),
            Bar(name=name + "rounds in which it ended first", value=first, bound=len(races)),
            Bar(name=name + "rounds with a park", value=sum(race.parks > 0 for race in races), bound=len(races)),
        ]
    # Room for all is in the arena: who was parked there comes back by copy, or the arms would be one.
    again = sum(race.recomputes for race in samples.races[PARKING])
    bars.append(Bar(name=f"{part.name}, {PARKING}: parks by recompute", value=again, bound=0, at_most=True))
    every = [race for races in samples.races.values() for race in races]
    differing = len(texts_differing(every))
    bars.append(Bar(name=f"{part.name}: chats with more than one text", value=differing, bound=0, at_most=True))
    dropped = min(sum(race.recomputes for race in samples.races[RECOMPUTE]), 1)
    bars.append(Bar(name=f"{part.name}, {RECOMPUTE}: something was recomputed", value=dropped, bound=1))
    return bars


def _is_urgent(chat: Chat) -> bool:
    return chat.name == URGENT
