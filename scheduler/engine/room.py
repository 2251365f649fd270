"""How many pages the residents will want, and whether another fits beside them. Counts pages only, takes none.

A resident's claim is what it will hold within the lookahead, or at the end of its prompt, plus a margin of one page,
and never more than it can hold at its end. Entering, coming back and pressure all count the same claims, the
newcomer's too; who enters or comes back must fit for the steps until it has landed as well, so nothing comes in that
is too much at once. How much further admission looks before it orders is its own affair.
"""

from kv import pages_for
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence, State


class Room:
    """The group's page forecast. One addition per resident; nothing is kept between calls."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._page_size = roster.config.page_size
        self._lookahead = roster.config.lookahead_steps
        self._landing_steps = roster.config.max_inflight

    def claim(self, seq: Sequence, more_steps: int = 0) -> int:
        """Pages that `seq` should be able to hold soon, margin included."""
        ahead = seq.num_scheduled + self._lookahead + more_steps
        known = seq.num_tokens + seq.num_pending
        pages = -(-(ahead if ahead > known else known) // self._page_size) + 1
        return pages if pages < seq.max_pages else seq.max_pages

    def shortfall(self) -> int:
        """Pages claimed beyond the pool by the residents that stay. Those being parked or ended count as gone."""
        total = -self._roster.pool.num_total
        for seq in self._roster.residents.values():
            if seq.state is not State.PARKING:
                total += self.claim(seq)
        return total

    def fits(self, seq: Sequence) -> bool:
        """Whether a sequence that holds no page may become resident now, with what is really free."""
        roster = self._roster
        if not roster.has_seat:
            return False
        free = roster.pool.num_free
        if not roster.residents:  # the margin is waived: alone, it may use the whole pool
            return pages_for(max(seq.num_tokens, seq.num_scheduled), self._page_size) <= free
        promised = sum(
            self.claim(other, self._landing_steps) - other.table.num_pages
            for other in roster.residents.values()
            if other.state is not State.PARKING
        )
        return promised + self.claim(seq, self._landing_steps) <= free
