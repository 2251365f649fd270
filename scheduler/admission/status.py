"""A snapshot of admission for status pages, lists of requests and the demo: plain frozen values that pickle."""

from collections import Counter
from dataclasses import dataclass

from scheduler.admission.books import Books
from scheduler.admission.ledger import GroupLedger
from scheduler.admission.request_record import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One live request.

    `slot`: the lowest number that was free when it came; it keeps it to its end, seated or not. `held` by an explicit
    park, for `hold_left_s` more seconds (None: without a deadline), after which `then` (None likewise). `n` choices
    were asked for, `seats` of them have not ended. `tokens`: prompt and output of all choices, the shared prompt once.
    `pages` are held on the device, `arena_pages` in host RAM. `parks` of any reason; `passes`: how often it was passed
    in the line where it waits now. `waited_s`: queued and parked without the time held; `parked_s`: parked, held or
    not; `age_s`: since it was submitted.
    """

    request_id: str
    slot: int
    owner: str
    state: str
    held: bool
    hold_left_s: float | None
    then: str | None
    cancelling: bool
    priority: int
    effective_priority: int
    prompt_tokens: int
    tokens: int
    n: int
    seats: int
    pages: int
    arena_pages: int
    parks: int
    recomputes: int
    passes: int
    waited_s: float
    parked_s: float
    age_s: float
    group_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """`pages_unclaimed`: free and not promised to anyone; 0, too, where residents wait for more than is free.
    The arena is None until the engine's first account. `exhausted`: pages are short, nobody can be parked, and nothing
    has ended or come free since."""

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
    exhausted: bool
    survivor_id: str | None
    commands_given: int
    commands_done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionStatus:
    """`by_tier` counts live requests by effective priority, then by state. `queued_*` count the line, in which nobody
    is held. `exhausted`: every group is."""

    requests: tuple[RequestRow, ...]
    groups: tuple[GroupRow, ...]
    by_state: dict[str, int]
    by_tier: dict[int, dict[str, int]]
    queued_requests: int
    queued_tokens: int
    draining: bool
    exhausted: bool


def take_status(books: Books, now: float) -> AdmissionStatus:
    """One row a live request, in order of arrival."""
    rows = tuple(take_row(record, books, now) for record in books.records.values())
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
        draining=books.draining,
        exhausted=books.exhausted,
    )


def take_row(record: RequestRecord, books: Books, now: float) -> RequestRow:
    """One request as it is now."""
    hold = books.holds.of(record.request_id)
    return RequestRow(
        request_id=record.request_id,
        slot=record.slot,
        owner=record.submission.owner,
        state=record.state.value,
        held=record.held,
        hold_left_s=None if hold is None else hold.left_s(now),
        then=None if hold is None or hold.ends_at is None else hold.then.value,
        cancelling=record.cancelling,
        priority=record.priority,
        effective_priority=record.effective_priority(books.policy),
        prompt_tokens=len(record.submission.prompt_tokens),
        tokens=record.num_tokens,
        n=record.submission.n,
        seats=record.seats,
        pages=record.held_pages,
        arena_pages=record.parked_pages,
        parks=record.parks,
        recomputes=record.recomputes,
        passes=record.passes,
        waited_s=record.waited_s(now),
        parked_s=record.parked_s(now),
        age_s=now - record.born_at,
        group_id=record.group_id,
    )


def _group_row(ledger: GroupLedger) -> GroupRow:
    load = ledger.load
    room = ledger.room()
    return GroupRow(
        group_id=ledger.group_id,
        pages_total=ledger.capacity.num_pages,
        pages_free=ledger.pages_free,
        pages_unclaimed=max(0, room.pages),
        arena_total=None if load is None else load.arena_total,
        arena_free=None if load is None else load.arena_free,
        seats=ledger.capacity.seats,
        seats_free=room.seats,
        parked=len(ledger.parked),
        shortfall=ledger.shortfall,
        exhausted=ledger.exhausted,
        survivor_id=ledger.survivor_id,
        commands_given=ledger.last_number,
        commands_done=0 if load is None else load.last_command,
    )
