"""A snapshot of admission for /health, /slots and the demo: plain frozen values for `dataclasses.asdict`."""

from collections import Counter
from dataclasses import dataclass

from scheduler.admission.books import Books
from scheduler.admission.ledger import GroupLedger
from scheduler.admission.request_record import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """`pages` are held in the pool (seated) or in the arena (parked). `waited_s`: queued and parked, all stretches."""

    request_id: str
    state: str
    cancelling: bool
    priority: int
    effective_priority: int
    tokens: int
    pages: int
    parks: int
    passes: int
    waited_s: float
    group_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """`pages_unclaimed`: free and not promised to anyone. The arena is None until the engine's first account."""

    group_id: str
    pages_total: int
    pages_free: int
    pages_unclaimed: int
    arena_total: int | None
    arena_free: int | None
    seats: int
    seats_free: int
    parked: int
    shortfall: int
    survivor_id: str | None
    commands_given: int
    commands_done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionStatus:
    """`by_tier` counts live requests by effective priority, then by state."""

    requests: tuple[RequestRow, ...]
    groups: tuple[GroupRow, ...]
    by_state: dict[str, int]
    by_tier: dict[int, dict[str, int]]
    queued_requests: int
    queued_tokens: int


def take_status(books: Books, now: float) -> AdmissionStatus:
    """One row a live request, in order of arrival."""
    rows = tuple(_request_row(record, books, now) for record in books.records.values())
    tiers: dict[int, Counter[str]] = {}
    for row in rows:
        tiers.setdefault(row.effective_priority, Counter())[row.state] += 1
    return AdmissionStatus(
        requests=rows,
        groups=tuple(_group_row(ledger) for _, ledger in sorted(books.ledgers.items())),
        by_state=dict(Counter(row.state for row in rows)),
        by_tier={tier: dict(states) for tier, states in sorted(tiers.items(), reverse=True)},
        queued_requests=len(books.queue),
        queued_tokens=books.queue.num_tokens,
    )


def _request_row(record: RequestRecord, books: Books, now: float) -> RequestRow:
    return RequestRow(
        request_id=record.request_id,
        state=record.state.value,
        cancelling=record.cancelling,
        priority=record.submission.priority,
        effective_priority=record.effective_priority(books.policy),
        tokens=record.num_tokens,
        pages=record.held_pages or record.parked_pages,
        parks=record.parks,
        passes=record.passes,
        waited_s=record.waited_s(now),
        group_id=record.group_id,
    )


def _group_row(ledger: GroupLedger) -> GroupRow:
    load = ledger.load
    room = ledger.room()
    return GroupRow(
        group_id=ledger.group_id,
        pages_total=ledger.capacity.num_pages,
        pages_free=ledger.pages_free,
        pages_unclaimed=room.pages,
        arena_total=None if load is None else load.arena_total,
        arena_free=None if load is None else load.arena_free,
        seats=ledger.capacity.seats,
        seats_free=room.seats,
        parked=len(ledger.parked),
        shortfall=ledger.shortfall,
        survivor_id=ledger.survivor_id,
        commands_given=ledger.last_number,
        commands_done=0 if load is None else load.last_command,
    )
