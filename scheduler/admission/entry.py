"""What may come in. Everything is refused before anything is done for it, the cheapest reasons first."""

from scheduler.admission.books import Books
from scheduler.admission.errors import (
    CapacityExhausted,
    Draining,
    DuplicateRequest,
    NeverFits,
    NoGroup,
    QueueFull,
    TooManyChoices,
)
from scheduler.messages import Submission


def check_room(books: Books, now: float) -> None:
    """Whether any request at all would be taken now. Raises `Draining`, `NoGroup`, `CapacityExhausted`, `QueueFull`."""
    _refuse_when_closed(books)
    if books.exhausted:
        raise CapacityExhausted(_until_one_enters(books, now))
    _refuse_when_full(books, 1, now)


def check_submission(books: Books, submission: Submission, now: float) -> None:
    """Whether this request is taken now. Raises an `AdmissionRefused`."""
    if submission.request_id in books.records:
        raise DuplicateRequest(submission.request_id)
    _refuse_when_closed(books)
    _refuse_what_never_fits(books, submission)
    able = [ledger for ledger in books.ledgers.values() if ledger.capacity.can_ever_hold(submission)]
    if all(ledger.exhausted for ledger in able):
        raise CapacityExhausted(_until_one_enters(books, now))
    _refuse_when_full(books, len(submission.prompt_tokens), now)


def _refuse_when_closed(books: Books) -> None:
    if books.draining:
        raise Draining(books.policy.max_retry_after_s)
    if not books.ledgers:
        raise NoGroup(books.policy.max_retry_after_s)


def _refuse_what_never_fits(books: Books, submission: Submission) -> None:
    capacities = [ledger.capacity for ledger in books.ledgers.values()]
    if any(capacity.can_ever_hold(submission) for capacity in capacities):
        return
    seats = max(capacity.seats for capacity in capacities)
    if submission.n > seats:
        raise TooManyChoices(submission.n, seats)
    num_tokens = len(submission.prompt_tokens) + 1
    widest = max(capacities, key=lambda capacity: (capacity.seats >= submission.n, capacity.limit_tokens))
    if submission.n > 1 and num_tokens <= widest.max_model_len:
        needed = widest.first_pages(submission) * widest.page_size
        raise NeverFits(needed, widest.pool_tokens, "the KV pool", submission.n)
    by_pool = widest.pool_tokens < widest.max_model_len
    raise NeverFits(num_tokens, widest.limit_tokens, "the KV pool" if by_pool else "the model's length")


def _refuse_when_full(books: Books, num_tokens: int, now: float) -> None:
    queue, policy = books.queue, books.policy
    excess_tokens = queue.num_tokens + num_tokens - policy.max_queued_tokens
    excess = len(queue) + 1 - policy.max_queued_requests
    # An empty queue takes any request that fits a pool: refused then, it would be refused for ever.
    if len(queue) == 0 or (excess <= 0 and excess_tokens <= 0):
        return
    retry_after_s = books.drain_rate.seconds_for(max(0, excess), max(0, excess_tokens), now, policy.max_retry_after_s)
    if excess > 0:
        raise QueueFull(len(queue), policy.max_queued_requests, "requests", retry_after_s)
    raise QueueFull(queue.num_tokens, policy.max_queued_tokens, "prompt tokens", retry_after_s)


def _until_one_enters(books: Books, now: float) -> int:
    """Seconds until all that wait, and one more, would have entered at the rate of late."""
    return books.drain_rate.seconds_for(len(books.queue) + 1, 0, now, books.policy.max_retry_after_s)
