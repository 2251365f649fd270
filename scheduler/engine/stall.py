"""When waiting for room is over, and for whom.

In a total stall no sequence can run and nothing is in flight: only an answer of admission or the clock can end it.
It ends with the newest page holder when nobody can be parked, or after a while.
"""

from scheduler.engine.draft import Draft
from scheduler.engine.parking import Parking
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence

STALL_PATIENCE_S = 10.0


class StallWatch:
    """`since`: when every runnable sequence began to wait for a page with nothing in flight; None while steps go on."""

    def __init__(self, roster: Roster, parking: Parking) -> None:
        self._roster = roster
        self._parking = parking
        self.since: float | None = None

    def clear(self) -> None:
        """A step computes something."""
        self.since = None
        if self._parking.refused:
            self._parking.refused.clear()

    def verdict(self, draft: Draft, now: float, *, moves: bool) -> tuple[Sequence, str] | None:
        """Who of the stalled must end, and the text for its client; None: wait. `moves`: a plan is, or will be, sent.

        Without parking, whoever finds no page ends at once, unless pages are about to be free.
        """
        if self._roster.config.park:
            return None if moves else self._newest(now)
        if self._roster.num_leaving > 0:
            return None
        return draft.stalled[0], pool_is_full(self._roster, draft.stalled[0], "and parking is off")

    def _newest(self, now: float) -> tuple[Sequence, str] | None:
        """The newest page holder, if no park can be hoped for."""
        if self.since is None:
            self.since = now
        arena = self._roster.arena
        if not any(self._can_park(seq) for seq in self._roster.running):
            why = f"and the host RAM budget of {arena.num_total} pages is full ({arena.num_free} are free)"
            if any(seq.table.num_pages <= arena.num_free for seq in self._roster.running if seq.table.num_pages):
                why = "and copies to host RAM fail"
        elif now >= self.since + STALL_PATIENCE_S:
            why = f"and no request was parked within {STALL_PATIENCE_S:g} s"
        else:
            return None
        seq = self._roster.newest(lambda one: one.table.num_pages > 0)
        return None if seq is None else (seq, pool_is_full(self._roster, seq, why))

    def _can_park(self, seq: Sequence) -> bool:
        """Whether parking `seq` is possible and would free something."""
        return 0 < seq.table.num_pages <= self._roster.arena.num_free and seq.seq_id not in self._parking.refused


def pool_is_full(roster: Roster, seq: Sequence, why: str) -> str:
    """What a client reads whose request found no page."""
    config = roster.config
    return (
        f"the KV pool of {config.pool_tokens} tokens is full: this request holds {seq.table.num_pages} of its "
        f"{config.num_pages} pages and needs another, {why}"
    )
