"""The events that a watch was asked for: all of them without end, or those of one request up to its end."""

from collections.abc import AsyncGenerator
from typing import Protocol

from cluster.watch import MAX_IN_BATCH, WatchBatch, WatchEvent
from scheduler.admission import RequestRow, UnknownRequest

# A poll that nobody waits for any more stays in admission for so long at most.
_POLL_S = 10.0

Following = AsyncGenerator[tuple[WatchBatch, list[WatchEvent]], None]


class WatchedAdmission(Protocol):
    """What is asked of `cluster.AdmissionClient`."""

    async def request(self, request_id: str, owner: str | None) -> RequestRow: ...

    async def watch(self, after: int, wait_s: float) -> WatchBatch: ...


async def follow(admission: WatchedAdmission, request_id: str, start: int) -> Following:
    """Batches, and the events of each that were asked for: the first at once, then whenever there are some or some are
    lost. `request_id` "" is all of them. Of one request they end with its first `finished`: what takes its id later is
    another.

    Raises `UnknownRequest` for one that does not live when nothing is told of it.
    """
    batch = await admission.watch(start, 0.0)
    told, has_ended, is_first = 0, False, True
    while True:
        events = _asked_for(batch, request_id)
        told += len(events)
        if is_first or events or batch.lost:
            yield batch, events
        if request_id and events and events[-1].kind == "finished":
            return
        if has_ended and len(batch.events) < MAX_IN_BATCH:
            break
        if request_id and (is_first or batch.lost):
            # Its end may lie before the watch, or be lost. Asked after a batch was read: what became of it meanwhile is
            # in the next one.
            has_ended = has_ended or not await _lives(admission, request_id)
        is_first = False
        batch = await admission.watch(batch.next, 0.0 if has_ended else _POLL_S)
    if not told:
        raise UnknownRequest(request_id)


def _asked_for(batch: WatchBatch, request_id: str) -> list[WatchEvent]:
    """Of one request up to its end."""
    if not request_id:
        return list(batch.events)
    events = [event for event in batch.events if event.request_id == request_id]
    end = next((index for index, event in enumerate(events) if event.kind == "finished"), len(events))
    return events[: end + 1]


async def _lives(admission: WatchedAdmission, request_id: str) -> bool:
    try:
        await admission.request(request_id, None)
    except UnknownRequest:
        return False
    return True
