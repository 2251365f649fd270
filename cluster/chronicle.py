"""What becomes of requests, told as it happens: to the watch, to the metrics, and one log line for each park.

It is told what the desk does and hears, and decides nothing. An admission counts from the engine's account that
contains it, for an engine may find no room.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.admission_figures import readings_of, refusal_reading
from cluster.readings import Reading
from cluster.watch import Fact, WatchRing
from scheduler.admission import Addressed, AdmissionRefused, HoldTerms, RequestRow
from scheduler.messages import (
    Admit,
    Deferred,
    EngineEvent,
    Finished,
    FinishReason,
    Park,
    Parked,
    ParkFailed,
    ParkMode,
    ParkReason,
    Pressure,
    Restored,
)

log = logging.getLogger(__name__)

Publish = Callable[[Sequence[Reading]], None]


@dataclass(slots=True)
class _Entry:
    """An admission that no account has shown yet."""

    group_id: str
    number: int
    row: RequestRow


@dataclass(slots=True)
class _Park:
    """A park from its order on. `parked_at` is None until the engine has said it; `then` is the next one, ordered
    before the engine has said that this is over."""

    free_before: int
    was_held: bool = False
    parked_at: float | None = None
    then: "_Park | None" = None


@dataclass(slots=True)
class _Account:
    """Of a group, as its engine told it last."""

    free: int
    last_command: int = 0


class Chronicle:
    """`publish` takes readings of the admission instruments."""

    def __init__(self, ring: WatchRing, publish: Publish) -> None:
        self._ring = ring
        self._publish = publish
        self._accounts: dict[str, _Account] = {}
        self._entries: dict[str, _Entry] = {}
        self._parks: dict[str, _Park] = {}

    # ---- what clients and operators do

    def submitted(self, row: RequestRow) -> None:
        self._tell("submitted", row, tokens=row.prompt_tokens, choices=row.n)

    def refused(self, refusal: AdmissionRefused) -> None:
        self._publish([refusal_reading(refusal)])

    def held(self, row: RequestRow, terms: HoldTerms) -> None:
        if (park := self._parks.get(row.request_id)) is not None:
            park.was_held = True
        deadline: dict[str, Fact] = {}
        if terms.deadline_s is not None:
            deadline = {"deadline_s": terms.deadline_s, "then": str(terms.then)}
        self._tell("held", row, **deadline)

    def unheld(self, row: RequestRow, by: str) -> None:
        self._tell("unheld", row, by=by)

    def cancelled(self, row: RequestRow, by: str) -> None:
        self._tell("cancelled", row, by=by)

    def priority_changed(self, row: RequestRow, before: int) -> None:
        self._tell("priority", row, before=before)

    def of_all(self, kind: str) -> None:
        """ "draining" or "undrained"."""
        self._ring.add(kind)

    # ---- what admission orders and engines answer

    def joined(self, group_id: str, num_pages: int) -> None:
        """A group has come, empty."""
        self._accounts[group_id] = _Account(num_pages)

    def left(self, group_id: str) -> None:
        self._accounts.pop(group_id, None)

    def ordered(self, order: Addressed, row: RequestRow | None) -> None:
        """`row` as it is after the order."""
        match order.command:
            case Admit(number=number) if row is not None:
                self._entries[row.request_id] = _Entry(order.group_id, number, row)
            case Park(request_id=request_id, reason=reason):
                park = _Park(self._accounts[order.group_id].free, reason is ParkReason.EXPLICIT)
                if (last := self._parks.get(request_id)) is not None and last.parked_at is not None:
                    last.then = park
                else:
                    self._parks[request_id] = park

    def heard(self, event: EngineEvent, before: RequestRow | None, now: float) -> None:
        """An engine's event; `before` is its request as it was, None for one that admission does not know there."""
        load = event.load
        last = self._accounts.get(load.group_id)
        self._accounts[load.group_id] = _Account(load.pages_free, load.last_command)
        if isinstance(event, Pressure):
            self._ring.add(
                "pressure", "", load.group_id, shortfall=event.shortfall, free=load.pages_free, total=load.pages_total
            )
        if before is None:
            return
        match event:
            case Deferred():
                self._entries.pop(before.request_id, None)
            case Parked() if before.state in ("parking", "resident"):  # an engine in need parks by itself, too
                self._parked(event, before, load.pages_free if last is None else last.free, now)
            case ParkFailed():
                self._parks.pop(before.request_id, None)
                self._tell("park_failed", before, reason=event.reason)
            case Restored():
                self._restored(event, before, now)
            case Finished():
                self._admitted(before.request_id)
                self._ended(before, event.num_tokens, event.reason, event.error)
            case _:
                pass

    def caught_up(self, group_id: str) -> None:
        """All that came together from this engine was heard: admissions its last account contains did succeed."""
        account = self._accounts.get(group_id)
        if account is not None and self._entries:
            for request_id, entry in list(self._entries.items()):
                if entry.group_id == group_id and entry.number <= account.last_command:
                    self._admitted(request_id)

    def ended(self, before: RequestRow, reason: FinishReason, error: str | None = None) -> None:
        """No engine had it, or has said so."""
        self._ended(before, before.tokens, reason, error)

    def _ended(self, before: RequestRow, tokens: int, reason: FinishReason, error: str | None) -> None:
        self._entries.pop(before.request_id, None)
        self._parks.pop(before.request_id, None)
        facts: dict[str, Fact] = {"reason": str(reason), "tokens": tokens, "parks": before.parks}
        facts |= {"recomputes": before.recomputes, "age_s": before.age_s}
        self._tell("finished", before, **facts, **({} if error is None else {"error": error}))

    def _admitted(self, request_id: str) -> None:
        entry = self._entries.pop(request_id, None)
        if entry is not None:
            self._tell("admitted", entry.row, tokens=entry.row.tokens, waited_s=entry.row.waited_s)

    def _parked(self, event: Parked, before: RequestRow, free_before: int, now: float) -> None:
        """`free_before`: pages in the account before this one, for a park that nobody ordered."""
        self._admitted(before.request_id)
        load = event.load
        park = self._parks.setdefault(before.request_id, _Park(free_before))
        if park.parked_at is not None:  # its restore found no room, and it was ordered out meanwhile: nothing new
            park.was_held |= park.then is not None and park.then.was_held
            park.then = None
            return
        park.parked_at = now
        pages = event.num_pages if event.mode is ParkMode.COPY else before.pages
        self._tell(
            "parked",
            before,
            tokens=event.num_tokens,
            pages=pages,
            reason=str(event.reason),
            mode=str(event.mode),
            seconds=event.copy_s,
            bytes=event.copy_bytes,
            parks=before.parks + 1,
            free_before=park.free_before,
            free=load.pages_free,
            total=load.pages_total,
        )
        log.info(
            "parked %s: tier %d, %d tokens, %d pages, reason %s, mode %s, %.4f s, %d bytes, park %d of it; "
            "pool free %d -> %d of %d pages",
            before.request_id,
            before.priority,
            event.num_tokens,
            pages,
            event.reason,
            event.mode,
            event.copy_s,
            event.copy_bytes,
            before.parks + 1,
            park.free_before,
            load.pages_free,
            load.pages_total,
        )

    def _restored(self, event: Restored, before: RequestRow, now: float) -> None:
        park = self._parks.pop(before.request_id, None)
        if park is not None and park.then is not None:
            self._parks[before.request_id] = park.then
        since = None if park is None else park.parked_at
        self._tell(
            "restored",
            before,
            tokens=before.tokens,
            mode=str(event.mode),
            reason=event.reason,
            seconds=event.copy_s,
            bytes=event.copy_bytes,
            parked_s=0.0 if since is None else now - since,
            was_held=int(park is not None and park.was_held),
        )

    def _tell(self, kind: str, row: RequestRow, **facts: Fact) -> None:
        event = self._ring.add(kind, row.request_id, row.group_id or "", tier=row.priority, **facts)
        self._publish(readings_of(event))
