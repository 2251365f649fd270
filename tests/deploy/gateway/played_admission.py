"""Admission and the connections to engines, played by hand."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from scheduler.admission import HoldTerms, RequestRow, UnknownRequest
from scheduler.messages import Submission, TokenEvent
from tests.deploy.gateway.fakes import request_row


class Wire:
    """A connection that yields what is put into it; None hangs up."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[list[TokenEvent] | None] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[list[TokenEvent]]:
        while (batch := await self.batches.get()) is not None:
            yield batch


class HandPlayedAdmission:
    """`living_for` says how often an id that has an end there is still told of."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.refusal: Exception | None = None
        self.lost: Exception | None = None
        self.no_room: Exception | None = None
        self.calls: list[tuple[object, ...]] = []
        self.living_for: dict[str, int] = {}

    async def check_room(self) -> None:
        if self.no_room is not None:
            raise self.no_room

    async def requests(self, owner: str | None) -> list[RequestRow]:
        return [await self._row("requests", owner)]

    async def request(self, request_id: str, owner: str | None) -> RequestRow:
        if request_id in self.living_for:
            self.living_for[request_id] -= 1
            if self.living_for[request_id] < 0:
                raise UnknownRequest(request_id)
        return await self._row("request", request_id, owner)

    async def end(self, request_id: str, owner: str | None) -> RequestRow:
        return await self._row("end", request_id, owner)

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float = 5.0) -> RequestRow:
        return await self._row("park", request_id, owner, terms, wait_s)

    async def unpark(self, request_id: str, owner: str | None, wait_s: float = 0.0) -> RequestRow:
        return await self._row("unpark", request_id, owner, wait_s)

    async def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow:
        return await self._row("set_priority", request_id, owner, priority)

    async def _row(self, *call: object) -> RequestRow:
        if self.lost is not None:
            raise self.lost
        self.calls.append(call)
        return request_row("a")

    async def submit(self, submission: Submission) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append(submission.request_id)

    async def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)

    async def status(self) -> Mapping[str, Any]:
        if self.lost is not None:
            raise self.lost
        group = {"group_id": "group-0", "pages_free": 3, "survivor_id": "chatcmpl-secret"}
        return {
            "queued_requests": 1,
            "requests": [{"request_id": "chatcmpl-secret", "owner": "alice", "state": "parked"}],
            "groups": [group],
        }
