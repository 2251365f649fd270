"""Orders from outside for one live request: hold it, let it go on, give it another priority. Right in every state.

Each is idempotent, and raises `OrderRefused` before anything has changed. They return the commands that follow at once;
the caller places whoever may go now.
"""

from scheduler.admission.books import Addressed, Books
from scheduler.admission.errors import UnknownRequest, WrongState
from scheduler.admission.hold import HoldEnd, HoldTerms
from scheduler.admission.request_record import RequestRecord, RequestState
from scheduler.messages import ParkReason

_INT32 = 2**31


def hold(books: Books, request_id: str, terms: HoldTerms, now: float) -> list[Addressed]:
    """Park it until an unpark or its deadline. Of one that is held already only the terms change."""
    record = _living(books, request_id)
    if record.held:
        books.hold(record, terms, now)
        return []
    _refuse_hold(books, record)
    in_seat = record.stays
    books.hold(record, terms, now)
    ledger = books.ledger_of(record)
    return [books.park(record, ledger, ParkReason.EXPLICIT)] if in_seat and ledger is not None else []


def release(books: Books, request_id: str, now: float) -> None:
    """Put it back in line. One that is not held is left as it is."""
    record = _living(books, request_id)
    if record.held:
        books.unhold(record, now)


def reprioritise(books: Books, request_id: str, priority: int) -> None:
    """Give it another priority in the client's own terms, from now on. `ValueError` beyond an int32."""
    if not -_INT32 <= priority < _INT32:
        raise ValueError(f"the priority is {priority}; it must fit 32 bits")
    record = _living(books, request_id)
    if priority == record.priority:
        return
    if record.state is RequestState.QUEUED and not record.held:
        books.queue.remove(record)
        record.reprioritise(priority)
        books.queue.add(record)
        return
    record.reprioritise(priority)
    ledger = books.ledger_of(record)
    if ledger is not None and record.request_id in ledger.seated:
        ledger.survivor_id = None  # who is best has to be asked again


def expire(books: Books, now: float) -> list[Addressed]:
    """What the deadlines that have come ask for."""
    orders = []
    for due in books.holds.due(now):
        record = books.records[due.request_id]
        if record.cancelling:
            continue
        if due.then is HoldEnd.UNPARK:
            books.unhold(record, now)
        elif (order := end(books, record)) is not None:
            orders.append(order)
    return orders


def end(books: Books, record: RequestRecord) -> Addressed | None:
    """Cancel one that is not being cancelled yet. None: no engine knows it, and it is gone at once."""
    ledger = books.ledger_of(record)
    if ledger is None:
        books.forget(record)
        return None
    return books.cancel(record, ledger)


def _living(books: Books, request_id: str) -> RequestRecord:
    record = books.records.get(request_id)
    if record is None:
        raise UnknownRequest(request_id)
    if record.cancelling:
        raise WrongState(request_id, "ending", "it has been cancelled")
    return record


def _refuse_hold(books: Books, record: RequestRecord) -> None:
    ledger, policy = books.ledger_of(record), books.policy
    ledgers = [ledger] if ledger is not None else list(books.ledgers.values())
    if ledgers and not any(each.capacity.park for each in ledgers):
        raise WrongState(record.request_id, record.state.value, "parking is off")
    # As many may be held as may queue, or the bounds of the queue could be got round by parking what stands in it.
    if len(books.holds) >= policy.max_queued_requests:
        why = f"{len(books.holds)} requests are held, and at most {policy.max_queued_requests} may be"
        raise WrongState(record.request_id, record.state.value, why)
    num_tokens = len(record.submission.prompt_tokens)
    if books.held_tokens and books.held_tokens + num_tokens > policy.max_queued_tokens:
        why = f"prompts of {books.held_tokens} tokens are held, and at most {policy.max_queued_tokens} may be"
        raise WrongState(record.request_id, record.state.value, why)
