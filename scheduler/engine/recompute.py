"""Pages dropped instead of copied: the tokens stay, and are computed again when the family has come back.

A page is given to nobody else while a plan in flight names its sequence; a token that such a plan still owes is
applied first. Positions computed again are counted apart, never as prompt tokens.
"""

from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family


class Recompute:
    """`waiting`: families to be parked this way whose plans in flight are not all answered."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.waiting: list[Family] = []

    def take_ready(self) -> list[Family]:
        """Families whose pages can be dropped now; they wait no longer."""
        ready = [family for family in self.waiting if not family.is_in_flight]
        if ready:
            self.waiting = [family for family in self.waiting if family.is_in_flight]
        return ready

    def forget(self, family: Family) -> None:
        if family in self.waiting:
            self.waiting.remove(family)

    def drop(self, family: Family) -> None:
        """Give every page and slot back and begin at the first position again."""
        self._roster.vacate(family)
        self.give_up_slots(family)
        for seq in family.living:
            assert seq.num_pending == 0
            seq.replay_end = max(seq.replay_end, seq.num_scheduled)
            seq.num_scheduled = 0

    def give_up_slots(self, family: Family) -> None:
        """What lies in the arena is wanted no more."""
        self._roster.free_slots(family.arena_ids)
        family.shared_arena_ids = ()
        for seq in family.living:
            seq.arena_ids = ()
