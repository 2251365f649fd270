"""Who is parked, and who never is.

Victims: the lowest tier first; within a tier the newest first, and the longest last, so that it goes only when it is
the tier's only candidate. The survivor is the best resident (tier, then length, then age): nobody parks it before the
shortage is over, and that is what makes every shortage end. Only one of a higher tier, should one have come, takes the
mark from it at the next pressure; tiers are finite, so that ends too. A victim of few pages frees little: victims are
therefore taken in this order until their pages cover what is short, and those of the last tier touched that are not
needed are let go.
"""

from collections.abc import Callable, Iterable

from scheduler.admission.ledger import GroupLedger, Room
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.request_record import RequestRecord, RequestState


def choose_survivor(residents: Iterable[RequestRecord], policy: AdmissionPolicy) -> RequestRecord | None:
    """The highest tier, then the longest, then the first to arrive."""
    return max(
        residents,
        key=lambda record: (record.effective_priority(policy), record.num_tokens, -record.seq),
        default=None,
    )


def victim_order(
    candidates: Iterable[RequestRecord], residents: Iterable[RequestRecord], policy: AdmissionPolicy
) -> list[RequestRecord]:
    """Candidates, first to go first. The longest of a tier is looked for among all its residents, candidates or not."""
    longest = _longest_by_tier(residents, policy)

    def key(record: RequestRecord) -> tuple[int, bool, int]:
        tier = record.effective_priority(policy)
        return tier, longest.get(tier) is record, -record.seq

    return sorted(candidates, key=key)


def _longest_by_tier(residents: Iterable[RequestRecord], policy: AdmissionPolicy) -> dict[int, RequestRecord]:
    longest: dict[int, RequestRecord] = {}
    for record in residents:
        tier = record.effective_priority(policy)
        best = longest.get(tier)
        if best is None or (record.num_tokens, -record.seq) > (best.num_tokens, -best.seq):
            longest[tier] = record
    return longest


def parkable(ledger: GroupLedger, policy: AdmissionPolicy, now: float) -> list[RequestRecord]:
    """Residents that may be parked: running, not the survivor, no park of theirs failed just now."""
    if not ledger.capacity.park:
        return []
    return [
        record
        for record in ledger.staying()
        if record.state is RequestState.RESIDENT
        and ledger.is_carried_out(record)
        and record.request_id != ledger.survivor_id
        and ledger.failed_parks.get(record.request_id, now - policy.park_retry_s) <= now - policy.park_retry_s
    ]


class ArenaRoom:
    """Arena pages not spoken for, as far as known: parks ordered but not yet in the engine's account are subtracted.

    Where pages may be dropped and computed again, a full arena is no obstacle: the engine chooses."""

    def __init__(self, ledger: GroupLedger) -> None:
        load = ledger.load
        self._pages: int | None = None
        if load is not None and not ledger.capacity.recompute:
            ordered = [record for record in ledger.leaving() if record.left_by > load.last_command]
            self._pages = load.arena_free - sum(record.held_pages for record in ordered)

    def take(self, record: RequestRecord) -> bool:
        """Speak for the record's pages if they fit. What cannot fit is not worth an order that must fail."""
        if self._pages is None:
            return True
        if record.held_pages > self._pages:
            return False
        self._pages -= record.held_pages
        return True


def victims_for_shortfall(ledger: GroupLedger, policy: AdmissionPolicy, now: float) -> list[RequestRecord]:
    """As many victims as cover the reported shortfall beyond what those who leave will free; one resident stays.

    Empty when nothing is short or nobody can go: then the engine itself decides what ends.
    """
    short = ledger.shortfall
    residents = list(ledger.staying())
    running = sum(record.state is RequestState.RESIDENT and ledger.is_carried_out(record) for record in residents)
    arena = ArenaRoom(ledger)
    chosen: list[RequestRecord] = []
    for record in victim_order(parkable(ledger, policy, now), residents, policy):
        if short <= 0 or len(chosen) >= running - 1:
            break
        if arena.take(record):
            chosen.append(record)
            short -= ledger.relief(record)
    if not chosen or chosen[-1] in _longest_by_tier(residents, policy).values():
        # The longest goes only when it is its tier's only candidate, so none of those before it is let go.
        return chosen
    return _without_needless(chosen, policy, ledger.relief, -short)


def _without_needless(
    chosen: list[RequestRecord], policy: AdmissionPolicy, relief: Callable[[RequestRecord], int], spare: int
) -> list[RequestRecord]:
    """Let go of victims whose pages are spare after all, but only in the highest tier touched.

    A lower tier never runs on in the place of a higher one because its pages were fewer.
    """
    last_tier = chosen[-1].effective_priority(policy)
    kept = []
    for record in chosen:
        if record.effective_priority(policy) == last_tier and relief(record) <= spare:
            spare -= relief(record)
        else:
            kept.append(record)
    return kept


def victims_for_candidate(
    candidate: RequestRecord, ledger: GroupLedger, policy: AdmissionPolicy, now: float
) -> list[RequestRecord] | None:
    """Residents of strictly lower rank whose leaving lets the candidate in, in victim order; None if there are none.

    The client's own priority counts here, not age and not parks: with anything else two requests could displace each
    other for ever. Here the last resident may go too, for the candidate runs in its place.
    """
    lower = [
        record for record in parkable(ledger, policy, now) if record.guard_tier(policy) < candidate.submission.priority
    ]
    arena = ArenaRoom(ledger)
    room: Room = ledger.room_after_leaving()
    chosen: list[RequestRecord] = []
    for record in victim_order(lower, ledger.staying(), policy):
        if ledger.fits(candidate, room):
            break
        if arena.take(record):
            chosen.append(record)
            room = ledger.without(room, record)
    return chosen if chosen and ledger.fits(candidate, room) else None
