"""When waiting for room is over, and for whom.

In a total stall no sequence can run, nothing is in flight and no copy is under way: only an answer of admission or the
clock can end it. After a while the newest page holder is parked by dropping its pages, without asking admission again.
Where that is not allowed the newest ends: at once when nobody can be parked, else after that while.
"""

from typing import NamedTuple

from scheduler.engine.draft import Draft
from scheduler.engine.parking import Parking
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family

STALL_PATIENCE_S = 10.0


class Verdict(NamedTuple):
    """Who must make room. `error`: the text it ends with; None: its pages are dropped, and it is parked."""

    family: Family
    error: str | None


class StallWatch:
    """`since`: when every runnable sequence began to wait for a page with nothing under way; None while steps go on."""

    def __init__(self, roster: Roster, parking: Parking) -> None:
        self._roster = roster
        self._parking = parking
        self.since: float | None = None

    def clear(self) -> None:
        """A step computes something, or nobody waits."""
        self.since = None
        self._parking.forget_refusals()

    def verdict(self, draft: Draft, now: float, *, moves: bool) -> Verdict | None:
        """None: wait. `moves`: a plan is, or will be, sent.

        Without parking, whoever finds no page ends at once, unless pages are about to be free.
        """
        if self._roster.config.park:
            if self._parking.is_moving:  # it was answered; a plan in flight alone, a probe maybe, says nothing
                self.since = None
                return None
            return None if moves else self._newest(now)
        if self._roster.num_leaving > 0:
            return None
        family = draft.stalled[0].family
        return Verdict(family, self._pool_is_full(family, "and parking is off"))

    def _newest(self, now: float) -> Verdict | None:
        if self.since is None:
            self.since = now
        is_over = now >= self.since + STALL_PATIENCE_S
        family = self._roster.newest(lambda one: one.num_pages > 0)
        if family is None:
            return None
        if self._roster.config.recompute and len(self._roster.residents) > 1:
            return Verdict(family, None) if is_over else None
        if not any(self._can_copy(seq.family) for seq in self._roster.running):
            return Verdict(family, self._pool_is_full(family, self._why_no_copy()))
        if is_over:
            why = f"and no request was parked within {STALL_PATIENCE_S:g} s"
            return Verdict(family, self._pool_is_full(family, why))
        return None

    def _can_copy(self, family: Family) -> bool:
        """Whether parking it is possible and would free something."""
        fits = 0 < family.num_pages <= self._roster.arena.num_free
        return fits and not self._parking.was_refused(family)

    def _why_no_copy(self) -> str:
        arena = self._roster.arena
        if any(0 < seq.family.num_pages <= arena.num_free for seq in self._roster.running):
            return "and copies to host RAM fail"
        return f"and the host RAM budget of {arena.num_total} pages is full ({arena.num_free} are free)"

    def _pool_is_full(self, family: Family, why: str) -> str:
        """What a client reads whose request found no page."""
        config = self._roster.config
        return (
            f"the KV pool of {config.pool_tokens} tokens is full: this request holds {family.num_pages} of its "
            f"{config.num_pages} pages and needs another, {why}"
        )
