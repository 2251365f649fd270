"""How many pages the residents will want, and whether another fits beside them. Counts pages only, takes none.

A choice's claim is what it will hold within the lookahead, or once all its known tokens are computed, plus a margin of
one page, and never more than it can hold at its end. What a family shares is claimed once, by the family, from the
start. Entering, coming back and pressure all count the same claims, the newcomer's too; who enters or comes back must
fit for the steps until it has landed as well, so nothing comes in that is too much at once. Dropped pages change no
claim: who computes its tokens again will hold them again. How much further admission looks is its own affair.
"""

from kv import pages_for
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family, Sequence, State


class Room:
    """The group's page forecast. One addition per choice; nothing is kept between calls."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._page_size = roster.config.page_size
        self._lookahead = roster.config.lookahead_steps
        self._landing_steps = roster.config.max_inflight

    def claim(self, seq: Sequence, more_steps: int = 0) -> int:
        """Pages of its own, beside the shared ones, that `seq` should be able to hold soon, margin included."""
        ahead = seq.num_scheduled + self._lookahead + more_steps
        known = seq.num_tokens + seq.num_pending
        pages = -(-(ahead if ahead > known else known) // self._page_size) + 1
        return (pages if pages < seq.max_pages else seq.max_pages) - seq.num_shared_pages

    def shortfall(self) -> int:
        """Pages claimed beyond the pool by the residents that stay. Those being parked or ended count as gone."""
        total, claim, parking = -self._roster.pool.num_total, self.claim, State.PARKING
        for family in self._roster.residents.values():
            if family.state is not parking:
                total += family.num_shared_pages
                for seq in family.living:
                    total += claim(seq)
        return total

    def fits(self, family: Family) -> bool:
        """Whether a request that holds no page may become resident now, with what is really free."""
        roster = self._roster
        if roster.num_seated + len(family.living) > roster.config.max_running:
            return False
        free = roster.pool.num_free
        if not roster.residents:  # the margin is waived: alone, it may use the whole pool
            return self.to_hold(family) <= free
        promised = sum(
            self._claim_of(other) - other.num_pages
            for other in roster.residents.values()
            if other.state is not State.PARKING
        )
        return promised + self._claim_of(family) <= free

    def to_hold(self, family: Family) -> int:
        """Pages for every known token of a family."""
        shared = family.num_shared_pages
        return shared + sum(pages_for(seq.num_tokens, self._page_size) - shared for seq in family.living)

    def _claim_of(self, family: Family) -> int:
        return family.num_shared_pages + sum(self.claim(seq, self._landing_steps) for seq in family.living)
