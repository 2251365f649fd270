"""Four streams over HTTP, one of them parked by its id in the middle and resumed when the others are well ahead."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import httpx

from bench.chat import Chat, ChatRun, ChatState, run_chat
from bench.exactness.forced import Forced
from bench.streams import StreamError
from bench.subprocess_server import RunningServer

STEER_TIMEOUT_S = 600.0


@dataclass(slots=True, kw_only=True)
class HttpPark:
    """`alone` and `together` in the order of the chats; `row` is what the server said of the parked one."""

    alone: list[ChatRun]
    together: list[ChatRun]
    row: dict[str, object] = field(default_factory=dict)
    events_at_park: int = 0

    @property
    def num_same(self) -> int:
        """Chats whose bytes are those of their solo run, in full."""
        pairs = zip(self.alone, self.together, strict=True)
        return sum(solo.text == run.text and run.completion_tokens == run.chat.max_tokens for solo, run in pairs)


class Progress:
    """Wakes whoever waits for the streams' next change."""

    def __init__(self) -> None:
        self.runs: dict[str, ChatRun] = {}
        self._changed = asyncio.Event()

    def watch(self, run: ChatRun) -> None:
        self.runs[run.chat.name] = run
        self._changed.set()

    async def reached(self, names: Sequence[str], num_events: int) -> None:
        """Every one of them has so many events, or has ended. Raises `StreamError` when one was refused."""
        async with asyncio.timeout(STEER_TIMEOUT_S):
            while not all(self._has(name, num_events) for name in names):
                self._changed.clear()
                await self._changed.wait()

    async def is_parked(self, name: str) -> None:
        async with asyncio.timeout(STEER_TIMEOUT_S):
            while self.runs[name].parks_seen == 0 and self.runs[name].ended is None:
                self._changed.clear()
                await self._changed.wait()

    def _has(self, name: str, num_events: int) -> bool:
        run = self.runs.get(name)
        if run is None:
            return False
        if run.state is ChatState.REFUSED:
            raise StreamError(f"{name}: {run.error}")
        return run.num_events >= num_events or run.ended is not None


async def park_over_http(
    client: httpx.AsyncClient, server: RunningServer, chats: Sequence[Chat], sizes: Forced
) -> HttpPark:
    """Each alone, then all at once. Raises `StreamError` when an order is refused."""
    alone = [await run_chat(client, server.url, server.model, chat) for chat in chats]
    named = [replace(chat, request_id=secrets.token_hex(12)) for chat in chats]
    progress = Progress()
    running = [
        asyncio.create_task(run_chat(client, server.url, server.model, chat, watch=progress.watch)) for chat in named
    ]
    try:
        steered = await _steer(client, server, named, progress, sizes)
    except BaseException:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
    row, events_at_park = steered
    return HttpPark(alone=alone, together=await asyncio.gather(*running), row=row, events_at_park=events_at_park)


async def _steer(
    client: httpx.AsyncClient, server: RunningServer, chats: Sequence[Chat], progress: Progress, sizes: Forced
) -> tuple[dict[str, object], int]:
    parked, others = chats[1].name, [chat.name for chat in (chats[0], *chats[2:])]
    await progress.reached([parked], sizes.park_at)
    request = f"{server.url}/v1/requests/{progress.runs[parked].request_id}"
    await _order(client, f"{request}/park")
    await progress.is_parked(parked)
    events_at_park = progress.runs[parked].num_events
    row = (await client.get(request)).json()
    await progress.reached(others, sizes.resume_at)
    await _order(client, f"{request}/unpark")
    return row, events_at_park


async def _order(client: httpx.AsyncClient, url: str) -> None:
    answer = await client.post(url, timeout=STEER_TIMEOUT_S)
    if answer.status_code >= 400:
        raise StreamError(f"{url.rsplit('/', 1)[1]} was answered with {answer.status_code}: {answer.text[:300]}")
