"""Families on their way back: copied in if they lie in the arena, else to compute their tokens again.

Pages are taken when the restore begins, slots given back when it has landed. What can't be copied back, or comes back
with a wrong checksum, is computed again where that is allowed; else it stays parked, for a while.
"""

import logging

from scheduler.engine.copies import Copies
from scheduler.engine.outbox import Outbox
from scheduler.engine.recompute import Recompute
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family, State
from scheduler.messages import Deferred, Notice, ParkMode, Restored
from scheduler.plan import CopyOutcome, CopyResult

logger = logging.getLogger(__name__)

# Without recompute a restore that keeps failing is given up after so many failures in a row, and not before so many
# seconds: the count alone burns out in milliseconds, because the next try comes at once.
MAX_RESTORE_FAILURES = 8
RESTORE_PATIENCE_S = 60.0


class Returns:
    """Brings PARKED families to RUNNING."""

    def __init__(self, roster: Roster, room: Room, outbox: Outbox, copies: Copies, recompute: Recompute) -> None:
        self._roster = roster
        self._room = room
        self._outbox = outbox
        self._copies = copies
        self._recompute = recompute

    def begin(self, family: Family, now: float) -> None:
        """Take pages and order a copy, or let it run at once, or report that there is no room."""
        if not self._room.fits(family):
            self._outbox.report(Deferred, request_id=family.request_id)
        elif family.arena_ids:
            self._take_pages(family)
            self._roster.place(family, State.RESTORING)
            self._copies.order(family, is_out=False)
        else:
            self._restored(family, family.park_mode, now)

    def land(self, family: Family, result: CopyResult, now: float) -> str | None:
        """The copy has ended. Returns why the family must end, if it must."""
        if result.outcome is CopyOutcome.DONE:
            self._restored(family, ParkMode.COPY, now, result=result)
        elif self._roster.config.recompute:
            logger.warning("%s was not copied back, so it is computed again: %s", family.request_id, result.reason)
            self._recompute.drop(family)
            self._restored(family, ParkMode.RECOMPUTE, now, result=result)
        else:
            return self._failed(family, now)
        return None

    def report(self, family: Family, mode: ParkMode = ParkMode.COPY, result: CopyResult | None = None) -> None:
        """It runs."""
        self._outbox.report(
            Restored,
            request_id=family.request_id,
            mode=mode,
            reason="" if result is None else result.reason,
            copy_s=0.0 if result is None else result.seconds,
            copy_bytes=0 if result is None else result.num_bytes,
        )

    def _take_pages(self, family: Family) -> None:
        """As many as lie in the arena. What fits has room for them."""
        pool = self._roster.pool
        shared_ids = pool.allocate(len(family.shared_arena_ids))
        assert shared_ids is not None
        family.shared_ids = shared_ids
        for seq in family.living:
            if shared_ids:
                seq.table.borrow(shared_ids)
            granted = seq.table.grow(pool, seq.num_scheduled)
            assert granted is not None and len(granted) == len(seq.arena_ids)

    def _restored(self, family: Family, mode: ParkMode, now: float, *, result: CopyResult | None = None) -> None:
        self._recompute.give_up_slots(family)
        assert family.parked_at is not None
        family.parked_s += now - family.parked_at
        family.parked_at = None
        family.restore_failures = 0
        self._roster.place(family, State.RUNNING)
        if mode is ParkMode.RECOMPUTE:
            family.recomputes += 1
        self._outbox.notify(family, Notice.RESUMED)
        if mode is ParkMode.RECOMPUTE:
            self._outbox.notify(family, Notice.RECOMPUTED)
        self.report(family, mode, result)

    def _failed(self, family: Family, now: float) -> str | None:
        self._roster.vacate(family)
        self._roster.place(family, State.PARKED)
        if family.restore_failures == 0:
            family.restore_failed_at = now
        family.restore_failures += 1
        logger.warning("restore of %s failed, %d in a row", family.request_id, family.restore_failures)
        if family.restore_failures >= MAX_RESTORE_FAILURES and now - family.restore_failed_at >= RESTORE_PATIENCE_S:
            return f"{family.restore_failures} copies from host RAM failed in a row"
        self._outbox.report(Deferred, request_id=family.request_id)
        return None
