"""Numbered things of one kind, each of which is free, owned, or owned and being copied.

A thing that is being copied can't be given back: its owner waits for the copy to land on every rank. What is absent
from the free list has exactly one owner; the owners' own lists say which, and `check_integrity` compares both.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from kv.errors import KVCorruption

_FREE, _OWNED, _COPYING = 0, 1, 2


class IdPool:
    """Ids 0 to `num_total` - 1. Taking and giving back costs O(1) an id; the id given back last is taken first."""

    __slots__ = ("_free", "_states", "num_total")
    noun: ClassVar[str] = "id"

    def __init__(self, num_total: int) -> None:
        if num_total < 0:
            raise ValueError(f"a pool holds 0 or more {self.noun}s, not {num_total}")
        self.num_total = num_total
        # Reversed, so that a fresh pool hands out 0, 1, 2, ...
        self._free = list(range(num_total - 1, -1, -1))
        self._states = bytearray(num_total)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_owned(self) -> int:
        return self.num_total - len(self._free)

    def allocate(self, count: int) -> tuple[int, ...] | None:
        """`count` ids for one owner, or None (and nothing taken) when fewer are free."""
        free = self._free
        if count > len(free):
            return None
        if count == 1:  # what a decode step asks for
            taken = free.pop()
            self._states[taken] = _OWNED
            return (taken,)
        if count == 0:
            return ()
        ids = tuple(free[: -count - 1 : -1])
        del free[-count:]
        for taken in ids:
            self._states[taken] = _OWNED
        return ids

    def begin_copy(self, ids: Iterable[int]) -> None:
        """From now until `end_copy` these ids can't be freed."""
        self._move(ids, _OWNED, _COPYING)

    def end_copy(self, ids: Iterable[int]) -> None:
        """The copy has landed, or failed, on every rank."""
        self._move(ids, _COPYING, _OWNED)

    def free(self, ids: Sequence[int]) -> None:
        """Give ids back; the first will be taken first. Raises `KVCorruption` for one that is free or copying."""
        self._move(reversed(ids), _OWNED, _FREE)
        self._free.extend(reversed(ids))

    def _move(self, ids: Iterable[int], old: int, new: int) -> None:
        states = self._states
        for one in ids:
            if not 0 <= one < self.num_total or states[one] != old:
                raise KVCorruption(f"{self.noun} {one} is {self._describe(one)}; it can't become {_NAMES[new]}")
            states[one] = new

    def _describe(self, one: int) -> str:
        return _NAMES[self._states[one]] if 0 <= one < self.num_total else f"not in [0, {self.num_total})"

    def check_integrity(self, owners: Iterable[Iterable[int]]) -> None:
        """Every id has exactly one owner among `owners`, or is free. Raises `KVCorruption`."""
        owned: set[int] = set()
        for ids in owners:
            for one in ids:
                if one in owned:
                    raise KVCorruption(f"{self.noun} {one} has two owners")
                if self._states[one] == _FREE:
                    raise KVCorruption(f"{self.noun} {one} has an owner and is free")
                owned.add(one)
        if len(set(self._free)) != len(self._free):
            raise KVCorruption(f"the free list of {self.noun}s names one twice")
        if any(self._states[one] != _FREE for one in self._free):
            raise KVCorruption(f"the free list names a {self.noun} that is owned")
        if len(owned) + len(self._free) != self.num_total:
            raise KVCorruption(
                f"{len(owned)} {self.noun}s owned + {len(self._free)} free are not {self.num_total} in all"
            )


_NAMES = {_FREE: "free", _OWNED: "owned", _COPYING: "being copied"}
