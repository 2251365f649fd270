"""Admission as the admin interface knows it, played over plain rows, with the cluster's own ring of events."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from cluster.watch import WatchBatch, WatchRing
from scheduler.admission import (
    AdmissionStatus,
    GroupRow,
    HoldTerms,
    RequestRow,
    UnknownRequest,
    WrongState,
)


def row(request_id: str, **values: Any) -> RequestRow:
    """A resident of 100 tokens."""
    defaults: dict[str, Any] = {
        "request_id": request_id,
        "slot": 0,
        "owner": "",
        "state": "resident",
        "held": False,
        "hold_left_s": None,
        "then": None,
        "cancelling": False,
        "priority": 0,
        "effective_priority": 0,
        "prompt_tokens": 60,
        "tokens": 100,
        "n": 1,
        "seats": 1,
        "pages": 7,
        "arena_pages": 0,
        "parks": 0,
        "recomputes": 0,
        "passes": 0,
        "waited_s": 0.25,
        "parked_s": 0.0,
        "age_s": 3.5,
        "group_id": "group-0",
    }
    return RequestRow(**(defaults | values))


def group_row(**values: Any) -> GroupRow:
    defaults: dict[str, Any] = {
        "group_id": "group-0",
        "pages_total": 64,
        "pages_free": 50,
        "pages_unclaimed": 48,
        "arena_total": 85,
        "arena_free": 80,
        "seats": 8,
        "seats_free": 6,
        "parked": 1,
        "shortfall": 0,
        "survivor_id": None,
        "commands_given": 5,
        "commands_done": 5,
        "exhausted": False,
    }
    return GroupRow(**(defaults | values))


class PlayedAdmission:
    """`wait_s` keeps what a park was told to wait, `error` is raised by every call, `watching` counts open polls."""

    def __init__(self, *rows: RequestRow) -> None:
        self.rows = {row.request_id: row for row in rows}
        self.ring = WatchRing(lambda: 1_700_000_000.125, max_kept=4)
        self.groups = (group_row(),)
        self.draining = False
        self.error: Exception | None = None
        self.wait_s: float | None = None
        self.terms: HoldTerms | None = None
        self.hangs = False
        self.watching = 0
        self.watch_ended = asyncio.Event()

    async def requests(self, owner: str | None) -> list[RequestRow]:
        self._enter(owner)
        return list(self.rows.values())

    async def request(self, request_id: str, owner: str | None) -> RequestRow:
        self._enter(owner)
        if request_id not in self.rows:
            raise UnknownRequest(request_id)
        return self.rows[request_id]

    async def end(self, request_id: str, owner: str | None) -> RequestRow:
        return await self._change(request_id, owner, cancelling=True)

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float) -> RequestRow:
        found = await self.request(request_id, owner)
        self.wait_s, self.terms = wait_s, terms
        if self.hangs:
            await asyncio.Event().wait()
        if found.cancelling:
            raise WrongState(request_id, "ending", "it can be held no more")
        return await self._change(
            request_id,
            owner,
            state="parked",
            held=True,
            hold_left_s=terms.deadline_s,
            then=terms.then.value,
            pages=0,
            arena_pages=found.pages,
            parks=found.parks + 1,
        )

    async def unpark(self, request_id: str, owner: str | None, wait_s: float) -> RequestRow:
        self.wait_s = wait_s
        return await self._change(request_id, owner, held=False, hold_left_s=None, then=None)

    async def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow:
        return await self._change(request_id, owner, priority=priority, effective_priority=priority + 2)

    async def drain(self) -> None:
        self._enter(None)
        self.draining = True

    async def undrain(self) -> None:
        self._enter(None)
        self.draining = False

    async def status(self) -> Mapping[str, Any]:
        self._enter(None)
        states: dict[str, int] = {}
        for living in self.rows.values():
            states[living.state] = states.get(living.state, 0) + 1
        status = AdmissionStatus(
            requests=tuple(self.rows.values()),
            groups=self.groups,
            by_state=states,
            by_tier={0: states} if states else {},
            queued_requests=2,
            queued_tokens=300,
            draining=self.draining,
            exhausted=False,
        )
        return asdict(status)

    async def watch(self, after: int, wait_s: float) -> WatchBatch:
        self._enter(None)
        self.watching += 1
        try:
            return await self.ring.wait(after, wait_s)
        except asyncio.CancelledError:
            self.watch_ended.set()
            raise
        finally:
            self.watching -= 1

    async def _change(self, request_id: str, owner: str | None, **values: Any) -> RequestRow:
        self.rows[request_id] = replace(await self.request(request_id, owner), **values)
        return self.rows[request_id]

    def _enter(self, owner: str | None) -> None:
        assert owner is None, "the admin sees all"
        if self.error is not None:
            raise self.error
