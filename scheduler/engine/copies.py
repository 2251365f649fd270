"""Copies on their way: ordered, sent with a plan, landed when every rank has said so. Knows no reason for any of them.

Pages and arena slots of a copy that was sent can't be given back before it has landed, whatever becomes of its family.
One that was not sent yet can be dropped without a trace.
"""

from dataclasses import dataclass

from scheduler.engine.draft import Draft
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family
from scheduler.plan import CopyIn, CopyOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy under way, sent with the plan of `step`."""

    family: Family
    is_out: bool
    page_ids: tuple[int, ...]
    arena_ids: tuple[int, ...]
    step: int


class Copies:
    """Numbers copies from 0. `ordered`: families to be copied with the next plan, and whether out; `under_way` by copy
    id."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.ordered: list[tuple[Family, bool]] = []
        self._next_id = 0
        self.under_way: dict[int, Copy] = {}

    @property
    def are_pending(self) -> bool:
        """Whether pages will move without anybody's further doing."""
        return bool(self.ordered or self.under_way)

    def order(self, family: Family, *, is_out: bool) -> None:
        """Copy every page of a family to its slots, or back, with the next plan."""
        self.ordered.append((family, is_out))

    def forget(self, family: Family) -> None:
        """Drop an order that was not sent yet."""
        if self.ordered:
            self.ordered = [one for one in self.ordered if one[0] is not family]

    def fill(self, draft: Draft) -> list[Family]:
        """Put the orders into a plan. Returns the families of which nothing is left to copy."""
        empty: list[Family] = []
        ordered, self.ordered = self.ordered, []
        for family, is_out in ordered:
            page_ids, arena_ids = family.page_ids, family.arena_ids
            if not page_ids:  # the choices that held pages have ended since
                empty.append(family)
                continue
            self._roster.pool.begin_copy(page_ids)
            self._roster.arena.begin_copy(arena_ids)
            copy_id, self._next_id = self._next_id, self._next_id + 1
            if is_out:
                self._roster.write_slots(arena_ids)
                draft.copies_out.append(CopyOut(copy_id=copy_id, page_ids=page_ids, arena_ids=arena_ids))
            else:
                draft.copies_in.append(CopyIn(copy_id=copy_id, arena_ids=arena_ids, page_ids=page_ids))
            family.is_copying = True
            self.under_way[copy_id] = Copy(
                family=family, is_out=is_out, page_ids=page_ids, arena_ids=arena_ids, step=draft.step
            )
        return empty

    def land(self, copy_id: int) -> Copy:
        """A copy has ended, well or not, on every rank."""
        copy = self.under_way.pop(copy_id)
        self._roster.pool.end_copy(copy.page_ids)
        self._roster.arena.end_copy(copy.arena_ids)
        copy.family.is_copying = False
        return copy

    def abandon(self) -> None:
        """The ranks are lost: no copy will be answered."""
        for copy_id in list(self.under_way):
            self.land(copy_id)
