"""Which arena slots of this rank hold which sequence's pages, and when their memory can go back to the system.

The engine owns slots; a rank must only not throw away what may still be wanted. A restore can fail on another rank and
then be ordered again, and a park can fail there and leave its sequence running. So slots are given back when their
sequence is finished, or when it computes in a later step than the copy: then the engine has committed the copy.
"""

from collections.abc import Iterable

from workers.arena import Arena
from workers.errors import RankDisagreement


class ParkedPages:
    """A slot has at most one holder, the sequence that was copied there last."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._holder: dict[int, int] = {}
        self._slots: dict[int, set[int]] = {}
        self._copied_at: dict[int, int] = {}

    @property
    def num_held(self) -> int:
        return len(self._holder)

    def hold(self, seq_id: int, slots: Iterable[int], step: int) -> None:
        """The sequence's pages were copied to `slots` in this step; whoever held them before has lost them."""
        for slot in slots:
            before = self._holder.get(slot)
            if before is not None and before != seq_id:
                self._slots[before].discard(slot)
            self._holder[slot] = seq_id
            self._slots.setdefault(seq_id, set()).add(slot)
        self._copied_at[seq_id] = step

    def check(self, seq_id: int, slots: Iterable[int]) -> None:
        """Raises `RankDisagreement` unless the sequence holds every slot."""
        held = self._slots.get(seq_id, set())
        missing = [slot for slot in slots if slot not in held]
        if missing:
            raise RankDisagreement(f"the restore of {seq_id} reads arena slots {missing}, which do not hold its pages")

    def restored(self, seq_id: int, step: int) -> None:
        """The pages were copied in in this step; the slots stay until the sequence computes in a later one."""
        if seq_id in self._copied_at:
            self._copied_at[seq_id] = step

    def computes(self, seq_id: int, step: int) -> None:
        """The sequence has computed in this step."""
        if self._copied_at.get(seq_id, step) < step:
            self.release(seq_id)

    def release(self, seq_id: int) -> None:
        """Give back what the sequence still holds."""
        slots = self._slots.pop(seq_id, None)
        self._copied_at.pop(seq_id, None)
        if slots:
            for slot in slots:
                del self._holder[slot]
            self._arena.release(sorted(slots))
