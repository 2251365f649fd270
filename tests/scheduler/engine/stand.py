"""A loop that runs over fake ranks, and what it has said."""

import asyncio
from collections.abc import Mapping

from scheduler.engine import EngineConfig, EngineCore
from scheduler.engine.loop import EngineLoop
from scheduler.messages import (
    EngineEvent,
    Finished,
    TokenEvent,
)
from tests.fakes import FakeExecutor, FakeRanks


class Stand:
    """A loop that runs, and what it has said. `heard` is set whenever it says something."""

    def __init__(
        self, *, hold: bool = False, hold_copies: bool = False, pages: int = 16, arena: int = 0, recompute: bool = True
    ) -> None:
        self.core = EngineCore(
            EngineConfig(
                group_id="group",
                num_pages=pages,
                arena_pages=arena,
                page_size=4,
                max_running=8,
                max_step_tokens=64,
                max_model_len=1000,
                recompute=recompute,
            )
        )
        self.executor = FakeExecutor(
            FakeRanks(num_pages=pages, arena_pages=arena, page_size=4), hold=hold, hold_copies=hold_copies
        )
        self.said: list[TokenEvent] = []
        self.events: list[EngineEvent] = []
        self.heard = asyncio.Event()
        self.now = 0.0
        self.num_now = 0
        self.loop = EngineLoop(self.core, self.executor, self.on_tokens, self.on_event, self.clock)
        self.task = asyncio.create_task(self.loop.run())

    def clock(self) -> float:
        self.num_now += 1
        return self.now

    def on_tokens(self, batches: Mapping[str, list[TokenEvent]]) -> None:
        assert list(batches) == ["gateway"]
        self.said += batches["gateway"]
        self.heard.set()

    def on_event(self, event: EngineEvent) -> None:
        self.events.append(event)
        self.heard.set()

    async def until_finished(self, request_id: str) -> Finished:
        while True:
            for event in self.events:
                if isinstance(event, Finished) and event.request_id == request_id:
                    return event
            self.heard.clear()
            await asyncio.wait_for(self.heard.wait(), 5)

    async def until_event(self, kind: type[EngineEvent]) -> None:
        while not any(isinstance(event, kind) for event in self.events):
            self.heard.clear()
            await asyncio.wait_for(self.heard.wait(), 5)

    async def until_copying(self) -> None:
        """Until a copy is all that is under way."""
        for _ in range(50):
            if self.executor.ranks.copies and not self.core.num_inflight:
                return
            await asyncio.sleep(0)
        raise AssertionError("no copy is under way")

    async def until_due(self, count: int) -> None:
        """Until the executor owes this many answers; each turn of the event loop counts, no time passes."""
        for _ in range(20):
            if self.executor.num_due == count:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{self.executor.num_due} answers are due, not {count}")

    def tokens(self, request_id: str) -> list[int]:
        return [token for event in self.said if event.request_id == request_id for token in event.tokens]
