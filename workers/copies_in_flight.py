"""Pages and arena slots that copies of this rank are at work on. A plan that touches one contradicts itself.

Marked on the rank's thread before a copy starts, cleared on the copy thread before its end is told. The engine reuses
nothing before every rank has told, so a correct engine never meets a mark here, however far apart the ranks are.
"""

from collections import deque

import numpy as np
import numpy.typing as npt

from scheduler.plan import CopyIn, CopyOut
from workers.errors import RankDisagreement
from workers.kv_shard import Int64
from workers.sequences import check_pages

_REMEMBERED_IDS = 1024


class CopiesInFlight:
    """Of a pool of `num_pages` pages and an arena of `num_slots` slots."""

    def __init__(self, num_pages: int, num_slots: int) -> None:
        self._busy_pages = np.zeros(num_pages, dtype=np.bool_)
        self._busy_slots = np.zeros(num_slots, dtype=np.bool_)
        self._copies: dict[int, tuple[Int64, Int64]] = {}
        self._used_ids: deque[int] = deque(maxlen=_REMEMBERED_IDS)

    def __len__(self) -> int:
        return len(self._copies)

    def start(self, copy: CopyOut | CopyIn) -> tuple[Int64, Int64]:
        """Mark its pages and slots, and return them. Raises `RankDisagreement` for a copy that cannot be meant."""
        name = f"copy {copy.copy_id}"
        if copy.copy_id in self._copies or copy.copy_id in self._used_ids:
            raise RankDisagreement(f"the plan starts {name}, whose id has been used already")
        pages = check_pages(copy.page_ids, len(self._busy_pages), name)
        slots = check_pages(copy.arena_ids, len(self._busy_slots), name)
        if not len(pages) == len(slots) == len(set(copy.page_ids)) == len(set(copy.arena_ids)):
            raise RankDisagreement(
                f"{name} pairs {len(pages)} pages with {len(slots)} slots; they must be as many, each named once"
            )
        self.check_pages(pages, name)
        self.check_slots(slots, name)
        self._busy_pages[pages] = True
        self._busy_slots[slots] = True
        self._copies[copy.copy_id] = pages, slots
        self._used_ids.append(copy.copy_id)
        return pages, slots

    def end(self, copy_id: int) -> None:
        """Clear a copy's marks. On the copy thread."""
        pages, slots = self._copies[copy_id]
        self._busy_pages[pages] = False
        self._busy_slots[slots] = False
        del self._copies[copy_id]

    def check_pages(self, page_ids: npt.ArrayLike, who: str) -> None:
        """Raises `RankDisagreement` when one is under a copy. The ids are within bounds."""
        self._check(self._busy_pages, page_ids, f"{who} touches page")

    def check_slots(self, arena_ids: npt.ArrayLike, who: str) -> None:
        """Raises `RankDisagreement` when one is under a copy. The ids are within bounds."""
        self._check(self._busy_slots, arena_ids, f"{who} touches arena slot")

    def _check(self, busy: npt.NDArray[np.bool_], ids: npt.ArrayLike, who: str) -> None:
        if self._copies:
            asked = np.asarray(ids, dtype=np.int64)
            if busy[asked].any():
                raise RankDisagreement(f"{who} {asked[busy[asked]][0]}, which is under a copy")
