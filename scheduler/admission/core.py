"""The face of admission: messages in, commands out, the clock an argument. Nothing here waits, sleeps or does I/O.

Whoever hosts it must hand it every event of a group in the engine's order, deliver each group's commands in the order
given, and call `tick` now and then (once a second, and at `next_deadline`): age alone can change whose turn it is.
"""

from scheduler.admission import orders
from scheduler.admission.books import Addressed, Books
from scheduler.admission.capacity import GroupCapacity
from scheduler.admission.entry import check_room, check_submission
from scheduler.admission.hold import HoldTerms
from scheduler.admission.integrity import check_books
from scheduler.admission.ledger import GroupLedger
from scheduler.admission.placement import place_all
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.pressure import relieve
from scheduler.admission.request_record import RequestRecord, RequestState
from scheduler.admission.status import AdmissionStatus, RequestRow, take_row, take_status
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
        books = self._books
        ledger = books.ledgers.pop(group_id, None)
        if ledger is None:
            return []
        lost = [*ledger.seated.values(), *ledger.parked.values()]
        if left := list(books.ledgers.values()):
            waiting = [*books.queue, *books.shelf.values()]
            lost += [record for record in waiting if not any(group.can_ever_hold(record) for group in left)]
        for record in lost:
            books.forget(record)
        return [record.request_id for record in sorted(lost, key=lambda record: record.seq)]

    # ---- clients

    def check_room(self, now: float) -> None:
        """Whether any request would be taken now, asked before anything is done for one. Raises `AdmissionRefused`."""
        check_room(self._books, now)

    def submit(self, submission: Submission, now: float) -> list[Addressed]:
        """Take a request in. Raises `AdmissionRefused`, one of those in `errors`."""
        check_submission(self._books, submission, now)
        record = self._books.take_in(submission, now)
        # Behind another it changes nothing: the head has been tried at the last event.
        return place_all(self._books, now) if self._books.queue.first(now) is record else []

    def cancel(self, request_id: str, now: float) -> list[Addressed]:
        """End a request in whatever state; once only, and a no-op for one that is unknown or has ended."""
        record = self._books.records.get(request_id)
        if record is None or record.cancelling:
            return []
        changes_nothing = record.group_id is None and self._books.queue.first(now) is not record
        order = orders.end(self._books, record)
        placed = [] if changes_nothing else place_all(self._books, now)
        return placed if order is None else [order, *placed]

    def park(self, request_id: str, terms: HoldTerms, now: float) -> list[Addressed]:
        """Hold a request: no seat, no pages, in no line, until unpark or its deadline. Raises `OrderRefused`.

        It is held at once where it waits; from its seat it goes when its engine says so, and if that can't be it is
        not held any more, and `hold_failure` says why. One that is held already only gets the new terms.
        """
        ordered = orders.hold(self._books, request_id, terms, now)
        return [*ordered, *place_all(self._books, now)]

    def unpark(self, request_id: str, now: float) -> list[Addressed]:
        """End a hold; a no-op for one that is not held. Raises `OrderRefused`."""
        orders.release(self._books, request_id, now)
        return place_all(self._books, now)

    def set_priority(self, request_id: str, priority: int, now: float) -> list[Addressed]:
        """From now on, in whatever state; its age and its parks count as before.

        Raises `OrderRefused`, and `ValueError` for what is no int32.
        """
        orders.reprioritise(self._books, request_id, priority)
        return place_all(self._books, now)

    def drain(self, now: float) -> None:  # noqa: ARG002 - the clock is part of the seam
        """Take nothing new. Everything that lives goes on to its end, held or not. Idempotent."""
        self._books.draining = True

    def undrain(self, now: float) -> None:  # noqa: ARG002 - the clock is part of the seam
        """Take new requests again. Idempotent."""
        self._books.draining = False

    # ---- time

    @property
    def next_deadline(self) -> float | None:
        """When the first hold ends by itself; `tick` is due then."""
        return self._books.holds.next_deadline()

    def tick(self, now: float) -> list[Addressed]:
        """Only time has passed."""
        return [*orders.expire(self._books, now), *place_all(self._books, now)]

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
        ordered = self._apply(event, ledger, record, now)
        ledger.closed_until = now + self._policy.deferred_backoff_s if isinstance(event, Deferred) else None
        return [*ordered, *place_all(self._books, now)]

    def _apply(
        self, event: EngineEvent, ledger: GroupLedger, record: RequestRecord | None, now: float
    ) -> list[Addressed]:
        if record is not None:
            self._move(event, ledger, record, now)
        ledger.take_load(event.load)
        if isinstance(event, Pressure):
            ledger.take_shortfall(event.shortfall)
        return relieve(self._books, ledger, now) if isinstance(event, Pressure | ParkFailed) else []

    def _move(self, event: EngineEvent, ledger: GroupLedger, record: RequestRecord, now: float) -> None:
        books = self._books
        match event:
            # An engine in need parks by itself, too. One on its way back has answered no order yet that came after the
            # Restore: a Parked then is an answer that has been overtaken.
            case Parked() if record.state in (RequestState.RESIDENT, RequestState.PARKING):
                books.has_parked(record, ledger, event, now)
                ledger.note_relief()
            case ParkFailed() if record.state is RequestState.PARKING:
                books.park_has_failed(record, ledger, event.reason, now)
            case Restored() if record.request_id in ledger.seated:
                books.has_restored(record, event, now)
                ledger.note_relief()
            case Deferred() if record.request_id in ledger.seated:
                books.put_back(record, ledger, now)
            case Finished():
                books.forget(record)
                ledger.forget_failures()
            case _:
                pass

    # ---- looking in

    def knows(self, request_id: str) -> bool:
        """Whether the request lives."""
        return request_id in self._books.records

    def row(self, request_id: str, now: float) -> RequestRow | None:
        """One live request as it is now; None if there is none of this id."""
        record = self._books.records.get(request_id)
        return None if record is None else take_row(record, self._books, now)

    def hold_failure(self, request_id: str) -> str | None:
        """Why the last explicit park of a live request came to nothing; None if it did not, or since a newer one."""
        record = self._books.records.get(request_id)
        return None if record is None else record.hold_failure

    def status(self, now: float) -> AdmissionStatus:
        """A snapshot that shares nothing with the core."""
        return take_status(self._books, now)

    def check_integrity(self) -> None:
        """Raise `AdmissionCorrupt` unless every request is in exactly one place and every book adds up."""
        check_books(self._books)
