"""Which page-sized slots of the host RAM budget are free. One id means the same slot on every rank."""

from typing import ClassVar

from kv.ids import IdPool


class ArenaSlots(IdPool):
    """`num_slots` slots of one page each. A parked sequence owns one for each page that held computed tokens."""

    __slots__ = ()
    noun: ClassVar[str] = "arena slot"

    @property
    def num_slots(self) -> int:
        return self.num_total
