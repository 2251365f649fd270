"""The parked of one group in the order in which they come back, and how far the line may be read today.

Order: waiting tier, park count (explicit parks not counted), wait. The first that fits goes. One that does not fit is
passed at most `max_passes` times; then nobody behind it goes before it, so that the residents drain until it fits.
"""

from dataclasses import dataclass, field

from scheduler.admission.ledger import GroupLedger, Room
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.request_record import RequestRecord


def restore_line(ledger: GroupLedger, policy: AdmissionPolicy, now: float) -> list[RequestRecord]:
    """First to come back first; those held or being cancelled are not in it."""
    waiting = [record for record in ledger.parked.values() if not (record.cancelling or record.held)]

    def key(record: RequestRecord) -> tuple[int, int, float, int]:
        return -record.waiting_tier(policy, now), -record.forced_parks, record.since, record.seq

    return sorted(waiting, key=key)


@dataclass(slots=True)
class LineReading:
    """What reading a line came to: who goes (None: nobody), and who comes before it and does not fit."""

    goes: RequestRecord | None = None
    blocked: list[RequestRecord] = field(default_factory=list)


def read_line(line: list[RequestRecord], ledger: GroupLedger, policy: AdmissionPolicy, room: Room) -> LineReading:
    """Find the first that fits, not looking beyond one that may no longer be passed."""
    reading = LineReading()
    for record in line:
        if ledger.fits(record, room):
            reading.goes = record
            break
        reading.blocked.append(record)
        if record.passes >= policy.max_passes:
            break
    return reading
