"""An explicit park as it was ordered: how long it lasts, and what happens when its time is up.

A held request has no seat and no pages, is in no line, and does not age. It stays so until an explicit unpark, its
deadline or its end.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

# The longest deadline that clients and operators may give: some thirty years.
MAX_HOLD_S = 1e9
_MOST_STALE = 64


class HoldEnd(StrEnum):
    """What becomes of a held request at its deadline."""

    UNPARK = "unpark"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """`deadline_s` seconds after the order (None: never) comes `then`. `ValueError` unless positive and finite."""

    deadline_s: float | None = None
    then: HoldEnd = HoldEnd.UNPARK

    def __post_init__(self) -> None:
        if self.deadline_s is not None and not (0.0 < self.deadline_s < math.inf):
            raise ValueError(f"deadline_s is {self.deadline_s}; it must be more than 0 and finite, or absent")


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """One order to hold `request_id`, by which it is told apart from an earlier one. `ends_at` is the core's clock."""

    request_id: str
    then: HoldEnd
    ends_at: float | None

    def left_s(self, now: float) -> float | None:
        """Seconds until its deadline, 0 when that has passed; None without one."""
        return None if self.ends_at is None else max(0.0, self.ends_at - now)


@dataclass(slots=True)
class HoldClock:
    """The holds in force, and their deadlines in order. One that is over leaves the heap when it comes up, or when too
    many such have gathered."""

    _in_force: dict[str, Hold] = field(default_factory=dict)
    _deadlines: list[tuple[float, int, Hold]] = field(default_factory=list)
    _count: int = 0

    def __len__(self) -> int:
        return len(self._in_force)

    def __iter__(self) -> Iterator[str]:
        """Ids of the held."""
        return iter(self._in_force)

    def of(self, request_id: str) -> Hold | None:
        return self._in_force.get(request_id)

    def start(self, request_id: str, terms: HoldTerms, now: float) -> None:
        """From now on, in place of whatever terms it was held by."""
        ends_at = None if terms.deadline_s is None else now + terms.deadline_s
        hold = Hold(request_id, terms.then, ends_at)
        self._in_force[request_id] = hold
        if ends_at is not None:
            self._count += 1
            heapq.heappush(self._deadlines, (ends_at, self._count, hold))
            if len(self._deadlines) > _MOST_STALE + 2 * len(self._in_force):
                self._deadlines = [entry for entry in self._deadlines if self._stands(entry[2])]
                heapq.heapify(self._deadlines)

    def end(self, request_id: str) -> Hold | None:
        """The hold that is over now, or None."""
        return self._in_force.pop(request_id, None)

    def next_deadline(self) -> float | None:
        """When the first hold ends by itself."""
        while self._deadlines and not self._stands(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, now: float) -> list[Hold]:
        """The holds whose deadline has come, first deadline first. They stay in force until ended."""
        due = []
        while (at := self.next_deadline()) is not None and at <= now:
            due.append(heapq.heappop(self._deadlines)[2])
        return due

    def _stands(self, hold: Hold) -> bool:
        return self._in_force.get(hold.request_id) is hold
