"""Who goes where next. Repeats one move, the best there is now, until there is none: bounded by seats and parked.

A fresh request enters the group with the most free pages, but no group where somebody of its tier or a higher one is
parked. When nothing has room for the head of the queue, or for a parked request, residents of strictly lower priority
are parked for it; while they leave, and when it has been passed often enough, its group is kept for it.
"""

from scheduler.admission.books import Addressed, Books
from scheduler.admission.ledger import GroupLedger
from scheduler.admission.request_record import RequestRecord
from scheduler.admission.restore_line import highest_waiting_tier, read_line, restore_line
from scheduler.admission.victim import victims_for_candidate

DISPLACED = "displaced by a request of a higher priority"


def place_all(books: Books, now: float) -> list[Addressed]:
    """Every placement and displacement that is due now."""
    orders: list[Addressed] = []
    while True:
        head = books.queue.first(now)
        move, kept_id = _place_fresh(books, head, now) if head is not None else ([], None)
        if not move:
            move = _restore_somewhere(books, head, kept_id, now)
        if not move:
            return orders
        orders += move


def _open_ledgers(books: Books, now: float) -> list[GroupLedger]:
    return [
        ledger
        for _, ledger in sorted(books.ledgers.items())
        if ledger.closed_until is None or ledger.closed_until <= now
    ]


def _place_fresh(books: Books, head: RequestRecord, now: float) -> tuple[list[Addressed], str | None]:
    """Admit the head, or make room for it. Also: the group to be kept for it, if any."""
    tier = head.waiting_tier(books.policy, now)
    ledgers = [ledger for ledger in _open_ledgers(books, now) if _may_enter(ledger, head, tier, books, now)]
    fitting = [ledger for ledger in ledgers if ledger.fits(head, ledger.room())]
    if fitting:
        head.reserved_group_id = None
        return [books.admit(head, _emptiest(fitting), now)], None
    soon = [ledger for ledger in ledgers if any(ledger.leaving()) and ledger.fits(head, ledger.room_after_leaving())]
    if soon:
        return [], _emptiest(soon).group_id
    if (move := _displace_for_fresh(books, head, ledgers, now)) is not None:
        return move, move[0].group_id
    if head.passes < books.policy.max_passes:
        return [], None
    if head.reserved_group_id not in {ledger.group_id for ledger in ledgers}:
        # Chosen once, and kept: with a target that moved about, every group could go on passing it.
        head.reserved_group_id = _emptiest(ledgers).group_id if ledgers else None
    return [], head.reserved_group_id


def _may_enter(ledger: GroupLedger, head: RequestRecord, tier: int, books: Books, now: float) -> bool:
    parked_tier = highest_waiting_tier(ledger, books.policy, now)
    return ledger.can_ever_hold(head) and (parked_tier is None or tier > parked_tier)


def _emptiest(ledgers: list[GroupLedger]) -> GroupLedger:
    """Most free pages after everyone's growth, then most free seats, then the first by name."""

    def key(ledger: GroupLedger) -> tuple[int, int]:
        room = ledger.room()
        return room.pages - room.growth, room.seats

    return max(ledgers, key=key)


def _displace_for_fresh(
    books: Books, head: RequestRecord, ledgers: list[GroupLedger], now: float
) -> list[Addressed] | None:
    """Park where the highest rank that must go is lowest, then where the fewest must go."""
    options = []
    for ledger in ledgers:
        victims = victims_for_candidate(head, ledger, books.policy, now)
        if victims is not None:
            rank = max(victim.effective_priority(books.policy) for victim in victims)
            options.append((rank, len(victims), ledger, victims))
    if not options:
        return None
    _, _, ledger, victims = min(options, key=lambda option: option[:2])
    return [books.park(victim, ledger, DISPLACED) for victim in victims]


def _restore_somewhere(books: Books, head: RequestRecord | None, kept_id: str | None, now: float) -> list[Addressed]:
    for ledger in _open_ledgers(books, now):
        line = restore_line(ledger, books.policy, now)
        if head is not None and ledger.group_id == kept_id:
            # Kept for the head of the queue: only those who come before it may go.
            line = [record for record in line if not _precedes(head, record, books, now)]
        if move := _restore_from(books, ledger, line, head, now):
            return move
    return []


def _restore_from(
    books: Books, ledger: GroupLedger, line: list[RequestRecord], head: RequestRecord | None, now: float
) -> list[Addressed]:
    """Restore the first of the line that fits, or make room for the first that may displace."""
    reading = read_line(line, ledger, books.policy)
    blocked = [*reading.passed, *([reading.stuck] if reading.stuck else [])]
    for record in blocked:
        if any(ledger.leaving()) and ledger.fits(record, ledger.room_after_leaving()):
            return []
        victims = victims_for_candidate(record, ledger, books.policy, now)
        if victims is not None:
            return [books.park(victim, ledger, DISPLACED) for victim in victims]
    if reading.goes is None:
        return []
    for record in reading.passed:
        record.passes += 1
    if head is not None and ledger.can_ever_hold(head) and _precedes(head, reading.goes, books, now):
        head.passes += 1
    return [books.restore(reading.goes, ledger, now)]


def _precedes(head: RequestRecord, parked: RequestRecord, books: Books, now: float) -> bool:
    return head.waiting_tier(books.policy, now) > parked.waiting_tier(books.policy, now)
