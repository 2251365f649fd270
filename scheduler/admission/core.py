"""The face of admission: messages in, commands out, the clock an argument. Nothing here waits, sleeps or does I/O.

Whoever hosts it must hand it every event of a group in the engine's order, deliver each group's commands in the order
given, and call `tick` now and then (once a second will do): age alone can change whose turn it is.
"""

from scheduler.admission.books import Addressed, Books
from scheduler.admission.errors import DuplicateRequest, NeverFits, NoGroup, QueueFull
from scheduler.admission.integrity import check_books
from scheduler.admission.ledger import GroupCapacity, GroupLedger
from scheduler.admission.placement import place_all
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.pressure import relieve
from scheduler.admission.request_record import RequestRecord, RequestState
from scheduler.admission.status import AdmissionStatus, take_status
from scheduler.messages import (
    Deferred,
    EngineEvent,
    Finished,
    Parked,
    ParkFailed,
    Pressure,
    Progress,
    Restored,
    Submission,
)


class AdmissionCore:
    """Decides for all groups who enters, who is parked and who comes back.

    Every method is one decision: it either raises and changes nothing, or returns the commands to be sent, in order.
    """

    def __init__(self, policy: AdmissionPolicy | None = None) -> None:
        self._policy = policy or AdmissionPolicy()
        self._books = Books(self._policy)
        self._arrivals = 0

    # ---- groups

    def add_group(self, capacity: GroupCapacity) -> None:
        """Register an engine with an empty pool. `ValueError` if its name is taken: remove the lost one first."""
        if capacity.group_id in self._books.ledgers:
            raise ValueError(f"group {capacity.group_id} is registered already; remove it before adding it again")
        self._books.ledgers[capacity.group_id] = GroupLedger(capacity, self._policy)

    def remove_group(self, group_id: str, now: float) -> list[str]:  # noqa: ARG002 - the clock is part of the seam
        """Forget an engine that is lost, and everything that was on it.

        Returns the ids that are lost with it, in order of arrival, for the caller to fail or to submit again; those
        still queued that no group left can ever hold are among them. Nothing for an unknown group.
        """
        ledger = self._books.ledgers.pop(group_id, None)
        if ledger is None:
            return []
        lost = [*ledger.seated.values(), *ledger.parked.values()]
        for record in lost:
            del self._books.records[record.request_id]
        if left := list(self._books.ledgers.values()):
            homeless = [
                record for record in self._books.queue if not any(group.can_ever_hold(record) for group in left)
            ]
            for record in homeless:
                self._books.forget(record)
            lost += homeless
        return [record.request_id for record in sorted(lost, key=lambda record: record.seq)]

    # ---- clients

    def submit(self, submission: Submission, now: float) -> list[Addressed]:
        """Take a request in. Raises `AdmissionRefused`: `DuplicateRequest`, `NoGroup`, `NeverFits` or `QueueFull`."""
        self._refuse_what_cannot_be(submission, now)
        record = RequestRecord(
            submission=submission, seq=self._arrivals, since=now, num_tokens=len(submission.prompt_tokens)
        )
        self._arrivals += 1
        self._books.records[record.request_id] = record
        self._books.queue.add(record)
        # Behind another it changes nothing: the head has been tried at the last event.
        return place_all(self._books, now) if self._books.queue.first(now) is record else []

    def cancel(self, request_id: str, now: float) -> list[Addressed]:
        """End a request in whatever state; once only, and a no-op for one that is unknown or has ended."""
        record = self._books.records.get(request_id)
        if record is None or record.cancelling:
            return []
        ledger = self._books.ledger_of(record)
        if ledger is None:
            was_head = self._books.queue.first(now) is record
            self._books.forget(record)
            return place_all(self._books, now) if was_head else []
        return [self._books.cancel(record, ledger), *place_all(self._books, now)]

    def _refuse_what_cannot_be(self, submission: Submission, now: float) -> None:
        if submission.request_id in self._books.records:
            raise DuplicateRequest(submission.request_id)
        if not self._books.ledgers:
            raise NoGroup(self._policy.max_retry_after_s)
        num_tokens = len(submission.prompt_tokens)
        widest = max((ledger.capacity for ledger in self._books.ledgers.values()), key=lambda each: each.limit_tokens)
        if num_tokens + 1 > widest.limit_tokens:
            by_pool = widest.pool_tokens < widest.max_model_len
            raise NeverFits(num_tokens + 1, widest.limit_tokens, "the KV pool" if by_pool else "the model's length")
        self._refuse_when_full(num_tokens, now)

    def _refuse_when_full(self, num_tokens: int, now: float) -> None:
        queue, policy = self._books.queue, self._policy
        excess_tokens = queue.num_tokens + num_tokens - policy.max_queued_tokens
        excess = len(queue) + 1 - policy.max_queued_requests
        # An empty queue takes any request that fits a pool: refused then, it would be refused for ever.
        if len(queue) == 0 or (excess <= 0 and excess_tokens <= 0):
            return
        retry_after_s = self._books.drain_rate.seconds_for(
            max(0, excess), max(0, excess_tokens), now, policy.max_retry_after_s
        )
        if excess > 0:
            raise QueueFull(len(queue), policy.max_queued_requests, "requests", retry_after_s)
        raise QueueFull(queue.num_tokens, policy.max_queued_tokens, "prompt tokens", retry_after_s)

    # ---- engines

    def on_event(self, event: EngineEvent, now: float) -> list[Addressed]:
        """Take an engine's word. What it says of a group or a request that is not known (any more) is ignored."""
        ledger = self._books.ledgers.get(event.load.group_id)
        if ledger is None:
            return []
        record = None
        if not isinstance(event, Pressure | Progress):
            record = self._books.records.get(event.request_id)
            if record is not None and record.group_id != ledger.group_id:
                record = None
        orders = self._apply(event, ledger, record, now)
        ledger.closed_until = now + self._policy.deferred_backoff_s if isinstance(event, Deferred) else None
        return [*orders, *place_all(self._books, now)]

    def tick(self, now: float) -> list[Addressed]:
        """Only time has passed."""
        return place_all(self._books, now)

    def _apply(
        self, event: EngineEvent, ledger: GroupLedger, record: RequestRecord | None, now: float
    ) -> list[Addressed]:
        books = self._books
        if record is not None:
            match event:
                case Parked() if record.request_id in ledger.seated:
                    books.has_parked(record, ledger, event.num_pages, now)
                case ParkFailed() if record.state is RequestState.PARKING:
                    record.state = RequestState.RESIDENT
                    ledger.failed_parks[record.request_id] = now
                case Restored() if record.state is RequestState.RESTORING:
                    books.has_restored(record)
                case Deferred() if record.request_id in ledger.seated:
                    books.put_back(record, ledger)
                case Finished():
                    books.forget(record)
                    ledger.forget_failures()
                case _:
                    pass
        ledger.take_load(event.load)
        if isinstance(event, Pressure):
            ledger.take_shortfall(event.shortfall)
        return relieve(books, ledger, now) if isinstance(event, Pressure | ParkFailed) else []

    # ---- looking in

    def knows(self, request_id: str) -> bool:
        """Whether the request lives."""
        return request_id in self._books.records

    def status(self, now: float) -> AdmissionStatus:
        """A snapshot that shares nothing with the core."""
        return take_status(self._books, now)

    def check_integrity(self) -> None:
        """Raise `AdmissionCorrupt` unless every request is in exactly one place and every book adds up."""
        check_books(self._books)
