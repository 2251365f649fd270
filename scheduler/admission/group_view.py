"""One group as it stands between two placements: everything that is asked of it more than once, reckoned once.

Costs one pass over the seated and one sort of the parked; a view is thrown away when a move has touched its group.
"""

from dataclasses import dataclass, field

from scheduler.admission.ledger import GroupLedger, Room
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.request_record import RequestRecord
from scheduler.admission.restore_line import LineReading, read_line, restore_line
from scheduler.admission.victim import parkable, victims_for_candidate


@dataclass(slots=True)
class GroupView:
    """`room` is free now, `room_soon` once all who leave have left (None: nobody leaves). `line`: the parked in order.
    `lowest_guard`: a candidate of this priority or less displaces nobody here (None: nobody could be parked)."""

    ledger: GroupLedger
    policy: AdmissionPolicy
    now: float
    room: Room = field(init=False)
    room_soon: Room | None = field(init=False)
    line: list[RequestRecord] = field(init=False)
    lowest_guard: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.room = self.ledger.room()
        self.room_soon = self.ledger.room_after_leaving() if any(self.ledger.leaving()) else None
        self.line = restore_line(self.ledger, self.policy, self.now)
        candidates = parkable(self.ledger, self.policy, self.now)
        self.lowest_guard = min((record.guard_tier(self.policy) for record in candidates), default=None)

    @property
    def headroom(self) -> tuple[int, int]:
        """Free pages after everyone's growth, then free seats: the more, the emptier."""
        return self.room.pages - self.room.growth, self.room.seats

    def lets_in(self, fresh: RequestRecord) -> bool:
        """Whether a fresh request may enter at all: it can ever fit, and nobody of its tier or a higher is parked."""
        if not self.ledger.can_ever_hold(fresh):
            return False
        return not self.line or fresh.waiting_tier(self.policy, self.now) > self.line[0].waiting_tier(
            self.policy, self.now
        )

    def fits(self, record: RequestRecord) -> bool:
        return self.ledger.fits(record, self.room)

    def fits_soon(self, record: RequestRecord) -> bool:
        """Those who leave already make room enough."""
        return self.room_soon is not None and self.ledger.fits(record, self.room_soon)

    def victims_for(self, candidate: RequestRecord) -> list[RequestRecord] | None:
        """Whom to park so that the candidate fits, or None."""
        if self.lowest_guard is None or candidate.submission.priority <= self.lowest_guard:
            return None
        return victims_for_candidate(candidate, self.ledger, self.policy, self.now)

    def read_line(self, line: list[RequestRecord]) -> LineReading:
        return read_line(line, self.ledger, self.policy, self.room)
