"""One group's books: who has a seat, who is parked, and how many pages are free once all that is promised is counted.

The engine's last load is the truth about pages; on top of it lie the claims the engine has not met yet: the orders it
has not carried out (their number is beyond `load.last_command`), and residents that hold fewer pages than their tokens
need. Pages of those who leave count as taken until the engine says that they are free. All figures are pages.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kv import pages_for
from scheduler.admission.capacity import GroupCapacity
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.request_record import RequestRecord, RequestState
from scheduler.admission.shortage import Shortage
from scheduler.messages import GroupLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """`seats` and `pages` unclaimed, `taken`: requests seated; `growth`: pages that those who stay want for their
    runway."""

    seats: int
    taken: int
    pages: int
    growth: int


class GroupLedger:
    """The books of one group. Every record with its `group_id` is in exactly one of `seated` and `parked`.

    `last_number`: of the last command given.
    `survivor_id`: whom pressure and displacement leave alone until the shortage is over.
    `exhausted`: pages were short, nobody could be parked, and since then nothing has ended or come free.
    """

    def __init__(self, capacity: GroupCapacity, policy: AdmissionPolicy) -> None:
        self.capacity = capacity
        self._policy = policy
        self.last_number = 0
        self.load: GroupLoad | None = None
        self.seated: dict[str, RequestRecord] = {}
        self.parked: dict[str, RequestRecord] = {}
        self.survivor_id: str | None = None
        self.failed_parks: dict[str, float] = {}
        self.closed_until: float | None = None
        self.correction_pages = 0
        self._is_exhausted = False
        self._shortage = Shortage()

    @property
    def group_id(self) -> str:
        return self.capacity.group_id

    @property
    def pages_free(self) -> int:
        return self.capacity.num_pages if self.load is None else self.load.pages_free

    def number(self) -> int:
        """The next command's number."""
        self.last_number += 1
        return self.last_number

    def staying(self) -> Iterator[RequestRecord]:
        return (record for record in self.seated.values() if record.stays)

    def leaving(self) -> Iterator[RequestRecord]:
        return (record for record in self.seated.values() if not record.stays)

    # ---- the engine's word

    def take_load(self, load: GroupLoad) -> None:
        """Replace the account; one older than what is known already is left aside."""
        if self.load is not None and load.last_command < self.load.last_command:
            return
        self.load = load
        told = {resident.request_id: resident for resident in load.residents}
        for request_id, record in self.seated.items():
            if not self.is_carried_out(record):
                continue
            # Whoever is not in the account holds nothing: the event that says why is still to come.
            resident = told.get(request_id)
            record.held_pages = 0 if resident is None else resident.num_pages
            record.hold_pages = 0 if resident is None else resident.pages_to_hold
            if resident is not None:
                record.num_tokens = resident.num_tokens
                record.known_pages = resident.pages_to_hold
                record.seats = resident.seats
        if self._is_relieved():
            self.survivor_id = None

    def unseat(self, record: RequestRecord) -> None:
        """It has left its seat, and with it what the reported shortfall counted for it: its margin, too."""
        del self.seated[record.request_id]
        self._shortage.unseat(record, relief=self.relief(record), held=self.held(record))

    def _is_relieved(self) -> bool:
        """The shortage is over: nothing is short and nobody has still to leave for it, or only one stays, who has the
        whole pool."""
        if any(self.leaving()):
            return False
        return self.shortfall == 0 or sum(1 for _ in self.staying()) < 2

    def take_shortfall(self, shortfall: int) -> None:
        """Note the pressure reported with the load just taken.

        Where the engine sees less room than these books do (its lookahead is longer, say), the difference is kept
        as a correction, so that nothing is placed which the engine would at once ask to have parked again.
        """
        last_command = 0 if self.load is None else self.load.last_command
        self._shortage.report(shortfall, free=self.pages_free, last_command=last_command)
        if not any(self.leaving()):
            room = self.room()
            self.correction_pages = max(0, room.pages - room.growth + self._shortage.reported)

    @property
    def shortfall(self) -> int:
        """Pages still missing of what the engine last reported."""
        coming = sum(self.relief(record) for record in self.leaving() if self._shortage.will_help(record))
        return self._shortage.left(self.pages_free, coming)

    def forget_failures(self) -> None:
        """Something has ended here: the arena and the pool are not what they were when a park failed."""
        self.failed_parks.clear()
        self.correction_pages = 0
        self._is_exhausted = False

    def note_relief(self) -> None:
        """Something was ordered against the pressure, or has come free."""
        self._is_exhausted = False

    def note_no_relief(self) -> None:
        """Nobody could be ordered out. It counts where that is the arena's fault, and no placement is under way."""
        in_transit = any(
            record.state is not RequestState.RESIDENT or record.cancelling or not self.is_carried_out(record)
            for record in self.seated.values()
        )
        self._is_exhausted = not (self.capacity.recompute or in_transit) and len(self.seated) > 1

    @property
    def exhausted(self) -> bool:
        return self._is_exhausted and self.shortfall > 0

    def is_carried_out(self, record: RequestRecord) -> bool:
        """The engine's account knows the order that placed this record."""
        return self.load is not None and record.placed_by <= self.load.last_command

    # ---- pages of one record

    def need(self, record: RequestRecord) -> int:
        """Pages to place it: for its known tokens, and never fewer than it has in the arena."""
        if record.known_pages == 0:
            return self.capacity.pages(record.submission, 0, record.seats)
        return max(record.known_pages, record.parked_pages)

    def growth(self, record: RequestRecord) -> int:
        """Pages it wants beyond those for its known tokens: its runway and its margin, but no more than its last
        token can need. Of several choices each wants its own."""
        now = max(self.need(record), record.held_pages, record.hold_pages)
        return max(0, min(self._wanted(record, now), self._most(record)) - now)

    def _wanted(self, record: RequestRecord, now: int) -> int:
        size, tokens, margin = self.capacity.page_size, self._policy.runway_tokens, self._policy.margin_pages
        if record.submission.n > 1:  # where in its last page each choice stands is not told: at most so many more
            return now + record.seats * (pages_for(tokens, size) + margin)
        return pages_for(record.num_tokens + tokens, size) + margin

    def _most(self, record: RequestRecord) -> int:
        return self.capacity.most_pages(record.submission, record.seats)

    def relief(self, record: RequestRecord) -> int:
        """Pages its leaving takes off a shortfall, at least: those it holds or needs for its tokens, and its margin."""
        if not self.is_carried_out(record):
            return 0
        now = max(record.held_pages, record.hold_pages)
        return max(now, min(now + record.seats * self._policy.margin_pages, self._most(record)))

    def claim(self, record: RequestRecord) -> int:
        """Pages promised to a seated record that the engine still counts as free."""
        if not self.is_carried_out(record):
            return self.need(record)
        return max(0, record.hold_pages - record.held_pages) if record.stays else 0

    def held(self, record: RequestRecord) -> int:
        """Pages the engine counts as taken by a seated record."""
        return record.held_pages if self.is_carried_out(record) else 0

    # ---- room

    def room(self) -> Room:
        """What is free now: those who leave still hold their seats and pages."""
        return Room(
            seats=self.capacity.seats - sum(record.seats for record in self.seated.values()),
            taken=len(self.seated),
            pages=self.pages_free - sum(self.claim(record) for record in self.seated.values()),
            growth=sum(self.growth(record) for record in self.staying()),
        )

    def room_after_leaving(self) -> Room:
        """What will be free once all who leave have left."""
        room = self.room()
        for record in self.leaving():
            room = self._vacated(room, record)
        return room

    def without(self, room: Room, record: RequestRecord) -> Room:
        """The room if this staying record left too."""
        room = self._vacated(room, record)
        return replace(room, growth=room.growth - self.growth(record))

    def _vacated(self, room: Room, record: RequestRecord) -> Room:
        pages = room.pages + self.held(record) + self.claim(record)
        return replace(room, seats=room.seats + record.seats, taken=room.taken - 1, pages=pages)

    def fits(self, record: RequestRecord, room: Room) -> bool:
        """Whether the record can be placed in that room and run on for its runway, with everyone else.

        Runway and margin are waived when every seat is empty: what fits the pool alone must never wait for more.
        """
        if room.seats < record.seats:
            return False
        if room.taken == 0:
            return self.need(record) <= room.pages
        return self.need(record) + self.growth(record) + room.growth + self.correction_pages <= room.pages

    def can_ever_hold(self, record: RequestRecord) -> bool:
        return self.capacity.can_ever_hold(record.submission)
