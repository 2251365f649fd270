"""What happens to requests, as numbered events that whoever is interested can follow. No tokens, no texts, no keys.

`facts` by kind; each about a request has `tier`, its priority, too:
    submitted    tokens (of the prompt), choices
    admitted     tokens, waited_s (from its arrival, without what an engine could not take)
    parked       tokens, pages (freed), reason, mode, seconds and bytes (of the copy), parks, free_before, free, total
    park_failed  reason
    restored     tokens, mode, reason (why a copy became a recompute, else ""), seconds, bytes, parked_s, was_held
    finished     reason, error (only with reason "error"), tokens, parks, recomputes, age_s
    held         deadline_s and then (only with a deadline)
    unheld       by ("order" or "deadline")
    priority     before
    cancelled    by ("order", "deadline" or "gateway")
    pressure     shortfall, free, total: of a group
    draining, undrained: of the whole cluster
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Fact = str | int | float

MAX_KEPT = 4096
MAX_IN_BATCH = 1024
MAX_WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """`number` counts from 0 without a gap. `request_id` and `group_id` are "" where there is none."""

    number: int
    unix_s: float
    kind: str
    request_id: str = ""
    group_id: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchBatch:
    """`next`: what to ask for next. `lost`: events between the number asked for and the first still kept."""

    next: int
    lost: int
    events: tuple[WatchEvent, ...]


class WatchRing:
    """The last `MAX_KEPT` events. One event loop owns it."""

    def __init__(self, unix_s: Callable[[], float], max_kept: int = MAX_KEPT) -> None:
        self._unix_s = unix_s
        self._kept: deque[WatchEvent] = deque(maxlen=max_kept)
        self._next = 0
        self._news: asyncio.Future[None] | None = None

    def add(self, kind: str, request_id: str = "", group_id: str = "", **facts: Fact) -> WatchEvent:
        """Number it, keep it, and wake those who wait."""
        event = WatchEvent(
            number=self._next,
            unix_s=self._unix_s(),
            kind=kind,
            request_id=request_id,
            group_id=group_id,
            facts=facts,
        )
        self._next += 1
        self._kept.append(event)
        if self._news is not None:
            self._news.set_result(None)
            self._news = None
        return event

    def read(self, after: int) -> WatchBatch:
        """What is kept from number `after` on, `MAX_IN_BATCH` at most.

        A number that is negative or not given yet asks for nothing old: the answer says where now is.
        """
        if not 0 <= after < self._next:
            return WatchBatch(next=self._next, lost=0, events=())
        first = self._next - len(self._kept)
        begin = max(after, first)
        events = tuple(self._kept[number - first] for number in range(begin, min(self._next, begin + MAX_IN_BATCH)))
        return WatchBatch(next=begin + len(events), lost=begin - after, events=events)

    async def wait(self, after: int, wait_s: float) -> WatchBatch:
        """`read`, but where `after` is the very next number: as soon as there is an event, or empty after `wait_s`, at
        most `MAX_WAIT_S`."""
        if after == self._next and wait_s > 0:
            if self._news is None:
                self._news = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._news], timeout=min(wait_s, MAX_WAIT_S))
        return self.read(after)
