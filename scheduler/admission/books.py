"""Everything admission knows, and the few moves that change it. A move takes a record out of one place into another."""

from dataclasses import dataclass

from scheduler.admission.drain_rate import DrainRate
from scheduler.admission.hold import HoldClock, HoldTerms
from scheduler.admission.ledger import GroupLedger
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.queue import FreshQueue
from scheduler.admission.request_record import RequestRecord, RequestState
from scheduler.admission.slots import SlotNumbers
from scheduler.messages import Admit, Cancel, Command, Park, Parked, ParkMode, ParkReason, Restore, Restored, Submission


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressed:
    """A command and the group whose engine must get it, in the order given."""

    group_id: str
    command: Command


class Books:
    """`records` holds every live request; each is in the queue, on the `shelf` (held before an engine knew it), or in
    exactly one group's `seated` or `parked`."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self.policy = policy
        self.records: dict[str, RequestRecord] = {}
        self.queue = FreshQueue(policy)
        self.shelf: dict[str, RequestRecord] = {}
        self.ledgers: dict[str, GroupLedger] = {}
        self.holds = HoldClock()
        self.held_tokens = 0
        self.drain_rate = DrainRate(policy.drain_window_s)
        self.draining = False
        self._slots = SlotNumbers()
        self._arrivals = 0

    def ledger_of(self, record: RequestRecord) -> GroupLedger | None:
        return None if record.group_id is None else self.ledgers[record.group_id]

    @property
    def exhausted(self) -> bool:
        """No group can take anything new or make room for it."""
        return bool(self.ledgers) and all(ledger.exhausted for ledger in self.ledgers.values())

    # ---- in and out

    def take_in(self, submission: Submission, now: float) -> RequestRecord:
        """Into the queue."""
        record = RequestRecord(
            submission=submission,
            seq=self._arrivals,
            slot=self._slots.take(),
            since=now,
            born_at=now,
            num_tokens=len(submission.prompt_tokens),
        )
        self._arrivals += 1
        self.records[record.request_id] = record
        self.queue.add(record)
        return record

    def forget(self, record: RequestRecord) -> None:
        """Take it out of every book."""
        del self.records[record.request_id]
        self._slots.give_back(record.slot)
        if record.group_id is None:
            if self.shelf.pop(record.request_id, None) is None:
                self.queue.remove(record)
        elif ledger := self.ledgers.get(record.group_id):
            if record.request_id in ledger.seated:
                ledger.unseat(record)
            ledger.parked.pop(record.request_id, None)
            ledger.failed_parks.pop(record.request_id, None)
            if ledger.survivor_id == record.request_id:
                ledger.survivor_id = None
        self._end_hold(record)

    # ---- moves with a command

    def admit(self, record: RequestRecord, ledger: GroupLedger, now: float) -> Addressed:
        """Queue -> seat."""
        self.queue.remove(record)
        record.group_id = ledger.group_id
        record.state = RequestState.RESIDENT
        number = ledger.number()
        record.start_running(now, number)
        ledger.seated[record.request_id] = record
        self.drain_rate.note(now, len(record.submission.prompt_tokens))
        return Addressed(group_id=ledger.group_id, command=Admit(number=number, submission=record.submission))

    def restore(self, record: RequestRecord, ledger: GroupLedger, now: float) -> Addressed:
        """Parked -> seat, on its way in until the engine says Restored."""
        del ledger.parked[record.request_id]
        record.state = RequestState.RESTORING
        number = ledger.number()
        record.start_running(now, number)
        ledger.seated[record.request_id] = record
        return Addressed(group_id=ledger.group_id, command=Restore(number=number, request_id=record.request_id))

    def park(self, record: RequestRecord, ledger: GroupLedger, reason: ParkReason) -> Addressed:
        """Order a seated one out; it keeps its seat and pages until the engine says Parked."""
        number = ledger.number()
        record.told_to_leave(number)
        record.state = RequestState.PARKING
        if ledger.survivor_id == record.request_id:
            ledger.survivor_id = None
        command = Park(number=number, request_id=record.request_id, reason=reason)
        return Addressed(group_id=ledger.group_id, command=command)

    def cancel(self, record: RequestRecord, ledger: GroupLedger) -> Addressed:
        """Tell the engine once; the record stays until the engine says Finished."""
        number = ledger.number()
        record.told_to_leave(number)
        record.cancelling = True
        command = Cancel(number=number, request_id=record.request_id)
        return Addressed(group_id=ledger.group_id, command=command)

    # ---- moves the engine reports

    def has_parked(self, record: RequestRecord, ledger: GroupLedger, event: Parked, now: float) -> None:
        """Seat -> parked."""
        ledger.unseat(record)
        ledger.parked[record.request_id] = record
        record.state = RequestState.PARKED
        record.is_fresh = False
        record.parks += 1
        record.forced_parks += event.reason is not ParkReason.EXPLICIT
        record.num_tokens = event.num_tokens
        record.seats = event.seats
        record.known_pages = event.pages_to_hold
        record.parked_pages = event.num_pages
        record.held_pages = record.hold_pages = 0
        record.start_waiting(now)
        if ledger.survivor_id == record.request_id:
            ledger.survivor_id = None

    def has_restored(self, record: RequestRecord, event: Restored, now: float) -> None:
        """It runs. One told to leave again meanwhile stays on its way out."""
        record.recomputes += event.mode is ParkMode.RECOMPUTE
        record.end_parking(now)
        if record.state is RequestState.RESTORING:
            record.state = RequestState.RESIDENT

    def park_has_failed(self, record: RequestRecord, ledger: GroupLedger, reason: str, now: float) -> None:
        """It runs on, and is not held any more, whoever wanted it out."""
        record.state = RequestState.RESIDENT
        ledger.failed_parks[record.request_id] = now
        if record.held:
            record.hold_failure = reason
            self._end_hold(record)
            record.unhold(now)

    def put_back(self, record: RequestRecord, ledger: GroupLedger, now: float) -> None:
        """Seat -> wherever it came from, as if it had never been placed."""
        if record.state is RequestState.PARKING and not record.is_fresh:
            # It is parked already, and the engine will say so in answer to the Park: no park more.
            record.parks -= 1
            record.held_pages = record.hold_pages = 0
            return
        del ledger.seated[record.request_id]
        record.undo_running(now)
        record.held_pages = record.hold_pages = 0
        if not record.is_fresh:
            record.state = RequestState.PARKED
            ledger.parked[record.request_id] = record
            return
        record.state = RequestState.QUEUED
        record.group_id = None
        if record.held:
            self.shelf[record.request_id] = record
        else:
            self.queue.add(record)
        if record.cancelling:
            self.forget(record)

    # ---- held

    def hold(self, record: RequestRecord, terms: HoldTerms, now: float) -> None:
        """Out of the line it stands in; one that is seated has still to be ordered out."""
        if not record.held:
            self.held_tokens += len(record.submission.prompt_tokens)
            record.hold(now)
            if record.state is RequestState.QUEUED:
                self.queue.remove(record)
                self.shelf[record.request_id] = record
        self.holds.start(record.request_id, terms, now)

    def unhold(self, record: RequestRecord, now: float) -> None:
        """Back in its line, in the place of its arrival."""
        self._end_hold(record)
        record.unhold(now)
        if self.shelf.pop(record.request_id, None) is not None:
            self.queue.add(record)

    def _end_hold(self, record: RequestRecord) -> None:
        if self.holds.end(record.request_id) is not None:
            self.held_tokens -= len(record.submission.prompt_tokens)
