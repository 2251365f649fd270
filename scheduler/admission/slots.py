"""Small numbers for living requests, as clients of slot-based servers know them: lowest free first, from 0."""

import heapq
from dataclasses import dataclass, field


@dataclass(slots=True)
class SlotNumbers:
    """Independent of seats: a request keeps its number while it is queued, resident and parked."""

    _free: list[int] = field(default_factory=list)
    _ever: int = 0

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._ever += 1
        return self._ever - 1

    def give_back(self, slot: int) -> None:
        heapq.heappush(self._free, slot)
