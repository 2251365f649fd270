"""Proof that the books add up. Raises `AdmissionCorrupt` with what was found."""

from scheduler.admission.books import Books
from scheduler.admission.errors import AdmissionCorrupt
from scheduler.admission.ledger import GroupLedger
from scheduler.admission.request_record import RequestRecord, RequestState

_SEATED = (RequestState.RESIDENT, RequestState.PARKING, RequestState.RESTORING)


def check_books(books: Books) -> None:
    """Every live request is in exactly one place and no group is beyond its seats or its pages."""
    queued = {record.request_id: record for record in books.queue}
    _require(len(queued) == len(books.queue), f"the queue counts {len(books.queue)} but holds {len(queued)}")
    tokens = sum(len(record.submission.prompt_tokens) for record in queued.values())
    _require(tokens == books.queue.num_tokens, f"the queue counts {books.queue.num_tokens} tokens but holds {tokens}")
    for record in queued.values():
        at_rest = record.state is RequestState.QUEUED and record.group_id is None and not record.cancelling
        _require(at_rest, f"{record.request_id} is queued and {record.state} in {record.group_id}")
        _require(not record.held, f"{record.request_id} is held and stands in the queue")
    for record in books.shelf.values():
        at_rest = record.state is RequestState.QUEUED and record.group_id is None and not record.cancelling
        _require(at_rest, f"{record.request_id} is held aside and {record.state} in {record.group_id}")
        _require(record.held, f"{record.request_id} is held aside and not held")
    _check_holds(books)
    places = [*queued, *books.shelf]
    for ledger in books.ledgers.values():
        check_ledger(ledger)
        places += [*ledger.seated, *ledger.parked]
    _require(len(places) == len(set(places)), "a request is in two places")
    _require(set(places) == set(books.records), f"lost or stray: {sorted(set(places) ^ set(books.records))}")


def _check_holds(books: Books) -> None:
    held = {record.request_id for record in books.records.values() if record.held}
    _require(held == set(books.holds), f"held or in the book of holds, not both: {sorted(held ^ set(books.holds))}")
    tokens = sum(len(books.records[request_id].submission.prompt_tokens) for request_id in held)
    _require(tokens == books.held_tokens, f"{books.held_tokens} tokens count as held, and {tokens} are")
    slots = [record.slot for record in books.records.values()]
    _require(len(slots) == len(set(slots)), "two requests have one slot number")
    for record in books.records.values():
        waits = record.held and record.placed_at is None
        _require(waits == (record.frozen_at is not None), f"{record.request_id} ages though held, or not though not")


def check_ledger(ledger: GroupLedger) -> None:
    """One group's part of `check_books`."""
    seats, taken = ledger.capacity.seats, sum(record.seats for record in ledger.seated.values())
    _require(taken <= seats, f"{ledger.group_id} seats {taken} on {seats}")
    for record in ledger.seated.values():
        _check_member(record, ledger)
        _require(record.state in _SEATED, f"{record.request_id} has a seat and is {record.state}")
        leaves = record.state is RequestState.PARKING or record.cancelling
        _require(leaves or not record.held, f"{record.request_id} is held and stays in its seat")
        _require(record.placed_at is not None, f"{record.request_id} has a seat and no time of placing")
    for record in ledger.parked.values():
        _check_member(record, ledger)
        _require(record.state is RequestState.PARKED, f"{record.request_id} lies parked and is {record.state}")
        _require(record.placed_at is None, f"{record.request_id} lies parked and has a time of placing")
    survivor_id = ledger.survivor_id
    _require(survivor_id is None or survivor_id in ledger.seated, f"the survivor {survivor_id} has no seat")
    held = sum(ledger.held(record) for record in ledger.seated.values())
    total = ledger.capacity.num_pages
    _require(held <= total, f"{ledger.group_id}: {held} pages are held of {total}")


def _check_member(record: RequestRecord, ledger: GroupLedger) -> None:
    belongs = record.group_id == ledger.group_id
    _require(belongs, f"{record.request_id} is booked in {ledger.group_id} and says {record.group_id}")
    known = record.placed_by <= ledger.last_number and record.left_by <= ledger.last_number
    _require(known, f"{record.request_id} was placed by a command that was never given")


def _require(holds: bool, found: str) -> None:
    if not holds:
        raise AdmissionCorrupt(found)
