"""The Ray actor round admission: one a cluster, named and detached."""

import asyncio
from collections.abc import Sequence
from typing import Any

from cluster.admission_desk import AdmissionDesk, EnginePort, EngineWord
from cluster.cluster_spec import TokenAddress
from scheduler.admission import AdmissionPolicy, AdmissionRefused, GroupCapacity
from scheduler.messages import Command, Submission

_TICK_S = 1.0


class AdmissionActor:
    """Called a handful of times a request, never for a step or a token."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._desk = AdmissionDesk(policy)
        self._ticking: asyncio.Task[None] | None = None

    async def register(self, capacity: GroupCapacity, address: TokenAddress, engine: Any) -> None:
        """An engine is ready; `engine` is its actor."""

        async def send(commands: Sequence[Command]) -> None:
            await engine.commands.remote(list(commands))

        async def probe() -> None:
            await engine.probe.remote()

        self._desk.register(capacity, EnginePort(address, send, probe))
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick(), name="admission tick")

    async def submit(self, submission: Submission) -> AdmissionRefused | None:
        """The refusal as a value: an error raised here would come out wrapped."""
        return self._desk.submit(submission)

    async def cancel(self, request_id: str) -> None:
        self._desk.cancel(request_id)

    async def on_events(self, group_id: str, words: Sequence[EngineWord]) -> None:
        """From engines, one call at a time each."""
        self._desk.take_words(group_id, words)

    async def addresses(self) -> list[TokenAddress]:
        return self._desk.addresses

    async def status(self) -> dict[str, Any]:
        """After a turn of every engine's loop."""
        return await self._desk.status()

    async def check_integrity(self) -> None:
        self._desk.check_integrity()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._desk.tick()
