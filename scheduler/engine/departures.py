"""Families on their way out: copied to the arena if it has room, else, where that is allowed, by dropping their pages.

Either takes effect in the next plan: by then every position scheduled so far is computed or will be by the plans
before it, and a token that those plans still owe is applied when it comes, before the park is done. A copy that fails
has moved nothing: the pages are dropped instead, or the family runs on. A family that holds no page leaves at once,
without a word to the ranks.
"""

import logging

from scheduler.engine.copies import Copies
from scheduler.engine.outbox import Outbox
from scheduler.engine.recompute import Recompute
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family, State
from scheduler.messages import Notice, Parked, ParkFailed, ParkMode, ParkReason
from scheduler.plan import CopyOutcome, CopyResult

logger = logging.getLogger(__name__)


class Departures:
    """Brings RUNNING families to PARKED. `refused`: those whose park has failed since a step last made progress."""

    def __init__(self, roster: Roster, room: Room, outbox: Outbox, copies: Copies, recompute: Recompute) -> None:
        self._roster = roster
        self._room = room
        self._outbox = outbox
        self._copies = copies
        self._recompute = recompute
        self.refused: set[str] = set()

    def begin(self, family: Family, reason: ParkReason, now: float) -> None:
        """Take arena slots and order a copy, or begin to drop the pages, or report why neither."""
        config, arena = self._roster.config, self._roster.arena
        if not config.park:
            self._refuse(family, "parking is off")
            return
        family.park_reason = reason
        num_pages = family.num_pages
        arena_ids = arena.allocate(num_pages)
        if arena_ids is not None:
            self._begin_copy(family, arena_ids, now)
        elif config.recompute:
            self.begin_drop(family, reason, now)
        else:
            self._refuse(
                family,
                f"it holds {num_pages} pages, and {arena.num_free} of the {arena.num_total} pages "
                "of the host RAM budget are free",
            )

    def begin_drop(self, family: Family, reason: ParkReason, now: float) -> None:
        """Drop the pages as soon as no plan in flight names the family."""
        family.park_reason = reason
        self._roster.place(family, State.PARKING)
        if family.is_in_flight:
            self._recompute.waiting.append(family)
        else:
            self.drop(family, now)

    def drop(self, family: Family, now: float) -> None:
        """It is parked, and its pages are free."""
        self._recompute.drop(family)
        self._parked(family, ParkMode.RECOMPUTE, now)

    def leave_empty(self, family: Family, now: float) -> None:
        """It is parked, and held nothing."""
        self._parked(family, ParkMode.COPY, now)

    def land(self, family: Family, result: CopyResult, now: float) -> None:
        """The copy has ended: parked one way or the other, or it runs on."""
        if result.outcome is CopyOutcome.DONE:
            self._roster.vacate(family)
            self._parked(family, ParkMode.COPY, now, result)
        elif self._roster.config.recompute:
            logger.warning("%s was not copied out, so its pages are dropped: %s", family.request_id, result.reason)
            self.drop(family, now)
        else:
            self._recompute.give_up_slots(family)
            self._roster.place(family, State.RUNNING)
            self._refuse(family, f"the copy to host RAM failed on a rank: {result.reason}")

    def report(self, family: Family, result: CopyResult | None = None) -> None:
        """It is parked."""
        self._outbox.report(
            Parked,
            request_id=family.request_id,
            num_tokens=family.num_tokens,
            seats=len(family.living),
            pages_to_hold=self._room.to_hold(family),
            num_pages=len(family.arena_ids),
            mode=family.park_mode,
            reason=family.park_reason,
            copy_s=0.0 if result is None else result.seconds,
            copy_bytes=0 if result is None else result.num_bytes,
        )

    def _begin_copy(self, family: Family, arena_ids: tuple[int, ...], now: float) -> None:
        start = len(family.shared_ids)
        family.shared_arena_ids = arena_ids[:start]
        for seq in family.living:
            end = start + seq.table.num_own
            seq.arena_ids = arena_ids[start:end]
            start = end
        self._roster.place(family, State.PARKING)
        if arena_ids:
            self._copies.order(family, is_out=True)
        else:  # nothing of what lives is computed, so nothing of it is in flight either
            self.leave_empty(family, now)

    def _parked(self, family: Family, mode: ParkMode, now: float, result: CopyResult | None = None) -> None:
        """Its pages have just been given back."""
        self._roster.place(family, State.PARKED)
        family.park_mode = mode
        family.parks += 1
        family.parked_at = now
        self._outbox.notify(family, Notice.PARKED)
        self.report(family, result)

    def _refuse(self, family: Family, reason: str) -> None:
        self.refused.add(family.request_id)
        logger.info("park of %s failed: %s", family.request_id, reason)
        self._outbox.report(ParkFailed, request_id=family.request_id, reason=reason)
