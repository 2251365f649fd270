"""Sequences on their way out to the arena and back: orders taken, put into plans, landed when all ranks answered.

A park order takes effect in the next plan. By then every position scheduled so far is computed or will be by the plans
before it, so exactly the pages held are copied; a token that those plans still owe is applied when it comes, before
the park lands. Pages and arena slots are owned until the answer: a failed copy has moved nothing. A sequence without a
computed token is unknown to the ranks and moves without an order. Every order for a live sequence gets an answer.
"""

import logging

from scheduler.engine.draft import Draft
from scheduler.engine.outbox import Outbox
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence, State, Wish
from scheduler.messages import Deferred, Notice, Parked, ParkFailed, Restored
from scheduler.plan import ParkOrder, RestoreOrder

logger = logging.getLogger(__name__)

# A restore that keeps failing is given up after so many failures in a row, and not before so many seconds: the count
# alone burns out in milliseconds, because the next try comes at once.
MAX_RESTORE_FAILURES = 8
RESTORE_PATIENCE_S = 60.0


class Parking:
    """`refused`: ids whose park has failed since a step last made progress."""

    def __init__(self, roster: Roster, room: Room, outbox: Outbox) -> None:
        self._roster = roster
        self._room = room
        self._outbox = outbox
        self._parks: list[Sequence] = []
        self._restores: list[Sequence] = []
        self.refused: set[int] = set()

    @property
    def has_orders(self) -> bool:
        return bool(self._parks or self._restores)

    def order_park(self, seq: Sequence, reason: str) -> None:
        """Take arena slots and queue the copy out, or report why not."""
        if seq.state is State.RUNNING:
            self._begin_park(seq, reason)
        elif seq.state is State.RESTORING:
            seq.wish, seq.park_reason = Wish.PARK, reason
        elif seq.state is State.PARKING:
            seq.wish = None
        elif seq.state is State.PARKED:
            self._outbox.report(Parked, request_id=seq.request_id, num_pages=len(seq.arena_ids))

    def order_restore(self, seq: Sequence) -> None:
        """Take pages and queue the copy in, or report that there is no room."""
        if seq.state is State.PARKED:
            self._begin_restore(seq)
        elif seq.state is State.PARKING:
            seq.wish = Wish.RESTORE
        elif seq.state is State.RESTORING:
            seq.wish = None
        elif seq.state is State.RUNNING:
            self._outbox.report(Restored, request_id=seq.request_id)

    def forget(self, seq: Sequence) -> None:
        """An ended sequence: an order that is in no plan yet is dropped."""
        for queue in (self._parks, self._restores):
            if seq in queue:
                queue.remove(seq)
        self.refused.discard(seq.seq_id)

    def fill(self, draft: Draft, now: float) -> None:
        """Put the queued orders into a plan."""
        if not self.has_orders:
            return
        parks, self._parks = self._parks, []
        for seq in parks:
            if not seq.is_on_ranks:
                self._parked(seq, now)
                continue
            page_ids = seq.table.page_ids
            self._begin_copy(page_ids, seq.arena_ids)
            draft.parks.append(ParkOrder(seq_id=seq.seq_id, page_ids=page_ids, arena_ids=seq.arena_ids))
            draft.parking.append(seq)
        restores, self._restores = self._restores, []
        for seq in restores:
            if not seq.is_on_ranks:
                self._restored(seq, now)
                continue
            page_ids = seq.table.page_ids
            self._begin_copy(page_ids, seq.arena_ids)
            draft.restores.append(RestoreOrder(seq_id=seq.seq_id, arena_ids=seq.arena_ids, page_ids=page_ids))
            draft.restoring.append(seq)

    def land(self, draft: Draft, failed: frozenset[int], now: float) -> list[Sequence]:
        """The answer to a plan's copies has come. Returns the sequences whose restore is to be given up."""
        hopeless: list[Sequence] = []
        for seq in draft.parking:
            self._end_copy(seq)
            if seq.state is State.ENDED:
                continue
            if seq.seq_id in failed:
                self._park_failed(seq)
            else:
                self._parked(seq, now)
        for seq in draft.restoring:
            self._end_copy(seq)
            if seq.state is State.ENDED:
                continue
            if seq.seq_id not in failed:
                self._restored(seq, now)
            elif self._restore_failed(seq, now):
                hopeless.append(seq)
        return hopeless

    def end_copies(self, draft: Draft) -> None:
        """The ranks are lost: no copy of this plan will be answered."""
        for seq in (*draft.parking, *draft.restoring):
            self._end_copy(seq)

    def _begin_park(self, seq: Sequence, reason: str) -> None:
        if not self._roster.config.park:
            self._refuse(seq, "parking is off")
            return
        arena = self._roster.arena
        arena_ids = arena.allocate(seq.table.num_pages)
        if arena_ids is None:
            self._refuse(
                seq,
                f"it holds {seq.table.num_pages} pages, and {arena.num_free} of the {arena.num_total} pages "
                "of the host RAM budget are free",
            )
            return
        seq.arena_ids = arena_ids
        seq.park_reason = reason
        self._roster.place(seq, State.PARKING)
        self._parks.append(seq)

    def _begin_restore(self, seq: Sequence) -> None:
        roster = self._roster
        page_ids = seq.table.grow(roster.pool, seq.num_scheduled) if self._room.fits(seq) else None
        if page_ids is None:
            self._outbox.report(Deferred, request_id=seq.request_id)
            return
        roster.place(seq, State.RESTORING)
        self._restores.append(seq)

    def _refuse(self, seq: Sequence, reason: str) -> None:
        self.refused.add(seq.seq_id)
        logger.info("park of %s failed: %s", seq.request_id, reason)
        self._outbox.report(ParkFailed, request_id=seq.request_id, reason=reason)

    def _parked(self, seq: Sequence, now: float) -> None:
        pool = self._roster.pool
        free_before = pool.num_free
        num_pages = seq.table.release(pool)
        self._roster.place(seq, State.PARKED)
        seq.parks += 1
        seq.parked_at = now
        logger.info(
            "parked %s: %d tokens, %d pages, because of %s; pages free: %d before, %d after, of %d",
            *(seq.request_id, seq.num_tokens, num_pages, seq.park_reason),
            *(free_before, pool.num_free, pool.num_total),
        )
        self._outbox.say(seq, notice=Notice.PARKED)
        self._outbox.report(Parked, request_id=seq.request_id, num_pages=num_pages)
        wish, seq.wish = seq.wish, None
        if wish is Wish.RESTORE:
            self._begin_restore(seq)

    def _park_failed(self, seq: Sequence) -> None:
        self._roster.arena.free(seq.arena_ids)
        seq.arena_ids = ()
        self._roster.place(seq, State.RUNNING)
        self._refuse(seq, "the copy to host RAM failed on a rank")
        wish, seq.wish = seq.wish, None
        if wish is Wish.RESTORE:
            self._outbox.report(Restored, request_id=seq.request_id)

    def _restored(self, seq: Sequence, now: float) -> None:
        self._roster.arena.free(seq.arena_ids)
        seq.arena_ids = ()
        assert seq.parked_at is not None
        seq.parked_s += now - seq.parked_at
        seq.parked_at = None
        seq.restore_failures = 0
        self._roster.place(seq, State.RUNNING)
        self._outbox.say(seq, notice=Notice.RESUMED)
        self._outbox.report(Restored, request_id=seq.request_id)
        wish, seq.wish = seq.wish, None
        if wish is Wish.PARK:
            self._begin_park(seq, seq.park_reason)

    def _restore_failed(self, seq: Sequence, now: float) -> bool:
        seq.table.release(self._roster.pool)
        self._roster.place(seq, State.PARKED)
        if seq.restore_failures == 0:
            seq.restore_failed_at = now
        seq.restore_failures += 1
        logger.warning("restore of %s failed on a rank, %d in a row", seq.request_id, seq.restore_failures)
        if seq.restore_failures >= MAX_RESTORE_FAILURES and now - seq.restore_failed_at >= RESTORE_PATIENCE_S:
            return True
        self._outbox.report(Deferred, request_id=seq.request_id)
        wish, seq.wish = seq.wish, None
        if wish is Wish.PARK:
            self._outbox.report(Parked, request_id=seq.request_id, num_pages=len(seq.arena_ids))
        return False

    def _begin_copy(self, page_ids: tuple[int, ...], arena_ids: tuple[int, ...]) -> None:
        self._roster.pool.begin_copy(page_ids)
        self._roster.arena.begin_copy(arena_ids)

    def _end_copy(self, seq: Sequence) -> None:
        self._roster.pool.end_copy(seq.table.page_ids)
        self._roster.arena.end_copy(seq.arena_ids)
