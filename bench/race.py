"""Several chats on one server, all at once or one after another: how each went, and how long all of them took."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from bench.chat import Chat, ChatRun, run_chat
from bench.subprocess_server import RunningServer
from bench.verdict import is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """`wall_s` from the first start to the last end."""

    runs: tuple[ChatRun, ...]
    wall_s: float

    @property
    def num_whole(self) -> int:
        return sum(is_whole(run) for run in self.runs)

    @property
    def parks(self) -> int:
        return sum(run.parks for run in self.runs)

    @property
    def recomputes(self) -> int:
        return sum(run.recomputes for run in self.runs)

    @property
    def first(self) -> ChatRun:
        """The one that ended first."""
        return min(self.runs, key=lambda run: float("inf") if run.ended is None else run.ended)


async def at_once(client: httpx.AsyncClient, server: RunningServer, chats: Sequence[Chat]) -> Race:
    started = time.monotonic()
    runs = await asyncio.gather(*(run_chat(client, server.url, server.model, chat) for chat in chats))
    return Race(runs=tuple(runs), wall_s=time.monotonic() - started)


async def one_by_one(client: httpx.AsyncClient, server: RunningServer, chats: Sequence[Chat]) -> Race:
    started = time.monotonic()
    runs = [await run_chat(client, server.url, server.model, chat) for chat in chats]
    return Race(runs=tuple(runs), wall_s=time.monotonic() - started)


def texts_differing(races: Sequence[Race]) -> list[str]:
    """Names of the chats whose whole runs do not all say the same."""
    texts: dict[str, set[str]] = {}
    for race in races:
        for run in race.runs:
            if is_whole(run):
                texts.setdefault(run.chat.name, set()).add(run.text)
    return sorted(name for name, said in texts.items() if len(said) > 1)
