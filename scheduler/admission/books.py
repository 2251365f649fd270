"""Everything admission knows, and the few moves that change it. A move takes a record out of one place into another."""

from dataclasses import dataclass

from scheduler.admission.drain_rate import DrainRate
from scheduler.admission.ledger import GroupLedger
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.queue import FreshQueue
from scheduler.admission.request_record import RequestRecord, RequestState
from scheduler.messages import Admit, Cancel, Command, Park, Restore


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressed:
    """A command and the group whose engine must get it, in the order given."""

    group_id: str
    command: Command


class Books:
    """`records` holds every live request; each is in the queue, or in exactly one group's `seated` or `parked`."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self.policy = policy
        self.records: dict[str, RequestRecord] = {}
        self.queue = FreshQueue(policy)
        self.ledgers: dict[str, GroupLedger] = {}
        self.drain_rate = DrainRate(policy.drain_window_s)

    def ledger_of(self, record: RequestRecord) -> GroupLedger | None:
        return None if record.group_id is None else self.ledgers[record.group_id]

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

    def park(self, record: RequestRecord, ledger: GroupLedger, reason: str) -> Addressed:
        """Order a resident out; it keeps its seat and pages until the engine says Parked."""
        number = ledger.number()
        record.told_to_leave(number)
        record.state = RequestState.PARKING
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

    def has_parked(self, record: RequestRecord, ledger: GroupLedger, num_pages: int, now: float) -> None:
        """Seat -> parked."""
        ledger.seated.pop(record.request_id, None)
        ledger.parked[record.request_id] = record
        record.state = RequestState.PARKED
        record.parks += 1
        record.parked_pages = num_pages
        record.held_pages = record.hold_pages = 0
        record.start_waiting(now)
        if ledger.survivor_id == record.request_id:
            ledger.survivor_id = None

    def has_restored(self, record: RequestRecord) -> None:
        record.state = RequestState.RESIDENT
        record.parked_pages = 0
        record.passes = 0

    def put_back(self, record: RequestRecord, ledger: GroupLedger) -> None:
        """Seat -> wherever it came from, as if it had never been placed."""
        del ledger.seated[record.request_id]
        record.undo_running()
        record.held_pages = record.hold_pages = 0
        if record.state is RequestState.RESTORING:
            record.state = RequestState.PARKED
            ledger.parked[record.request_id] = record
            return
        record.state = RequestState.QUEUED
        record.group_id = None
        if record.cancelling:
            del self.records[record.request_id]
        else:
            self.queue.add(record)

    def forget(self, record: RequestRecord) -> None:
        """Take it out of every book."""
        del self.records[record.request_id]
        ledger = self.ledger_of(record)
        if ledger is None:
            self.queue.remove(record)
            return
        ledger.seated.pop(record.request_id, None)
        ledger.parked.pop(record.request_id, None)
        ledger.failed_parks.pop(record.request_id, None)
        if ledger.survivor_id == record.request_id:
            ledger.survivor_id = None
