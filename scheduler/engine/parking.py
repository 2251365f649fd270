"""Orders to park and to restore, and what becomes of them. Every order for a live family gets an answer.

An order that meets the opposite move under way waits for its end; the last such order counts.
"""

from scheduler.engine.copies import Copies, Copy
from scheduler.engine.departures import Departures
from scheduler.engine.draft import Draft
from scheduler.engine.outbox import Outbox
from scheduler.engine.recompute import Recompute
from scheduler.engine.returns import Returns
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family, State, Wish
from scheduler.messages import ParkReason
from scheduler.plan import CopyResult


class Parking:
    """The one face of departures and returns."""

    def __init__(self, roster: Roster, room: Room, outbox: Outbox, copies: Copies) -> None:
        self._copies = copies
        self._recompute = Recompute(roster)
        self._departures = Departures(roster, room, outbox, copies, self._recompute)
        self._returns = Returns(roster, room, outbox, copies, self._recompute)

    @property
    def is_moving(self) -> bool:
        """Whether pages will become free, or a family will run, without anybody's further doing."""
        return self._copies.are_pending or bool(self._recompute.waiting)

    def was_refused(self, family: Family) -> bool:
        """Whether its park has failed since a step last made progress."""
        return family.request_id in self._departures.refused

    def forget_refusals(self) -> None:
        """A step makes progress."""
        if self._departures.refused:
            self._departures.refused.clear()

    def order_park(self, family: Family, reason: ParkReason, now: float) -> None:
        if family.state is State.RUNNING:
            self._departures.begin(family, reason, now)
        elif family.state is State.RESTORING:
            family.wish, family.park_reason = Wish.PARK, reason
        elif family.state is State.PARKING:
            family.wish = None
        elif family.state is State.PARKED:
            self._departures.report(family)

    def order_restore(self, family: Family, now: float) -> None:
        if family.state is State.PARKED:
            self._returns.begin(family, now)
        elif family.state is State.PARKING:
            family.wish = Wish.RESTORE
        elif family.state is State.RESTORING:
            family.wish = None
        elif family.state is State.RUNNING:
            self._returns.report(family)

    def drop(self, family: Family, reason: ParkReason, now: float) -> None:
        """Park a running family by dropping its pages, though there may be room for a copy."""
        self._departures.begin_drop(family, reason, now)

    def forget(self, family: Family) -> None:
        """An ended family: an order that is in no plan yet is dropped."""
        self._copies.forget(family)
        self._recompute.forget(family)
        self._departures.refused.discard(family.request_id)

    def fill(self, draft: Draft, now: float) -> None:
        """Put the copies ordered into a plan."""
        if self._copies.ordered:
            for family in self._copies.fill(draft):
                self._departures.leave_empty(family, now)
                self._follow(family, now)

    def drop_ready(self, now: float) -> None:
        """An answer has come: drop the pages of those that waited for it."""
        if self._recompute.waiting:
            for family in self._recompute.take_ready():
                self._departures.drop(family, now)
                self._follow(family, now)

    def land(self, copy: Copy, result: CopyResult, now: float) -> str | None:
        """The copy of a family that lives has ended. Returns why the family must end, if it must."""
        family = copy.family
        if copy.is_out:
            self._departures.land(family, result, now)
        elif (error := self._returns.land(family, result, now)) is not None:
            return error
        self._follow(family, now)
        return None

    def _follow(self, family: Family, now: float) -> None:
        """A move has ended: carry out the order that waited for it."""
        wish, family.wish = family.wish, None
        if wish is Wish.PARK:
            self.order_park(family, family.park_reason, now)
        elif wish is Wish.RESTORE:
            self.order_restore(family, now)
