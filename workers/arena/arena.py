"""A rank's bounded host memory where parked pages lie: `num_slots` slots of one page each, each with its checksum.

Who may use a slot is the engine's to say; this class gives slots memory, and takes it back. A slot that is freed stays
warm, with its memory, until `trim`: to touch memory for the first time costs more than to copy a page. What is warm is
charged to the node's budget like what is in use, and goes as soon as another arena asks for it (`is_asked`).

Used by one thread at a time, the copy thread.
"""

import secrets
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workers.arena.budget import NO_BUDGET, PATIENCE_S, BudgetSpec, NodeBudget
from workers.arena.errors import ArenaError, NoHostMemory, WrongChecksum
from workers.arena.names import SEGMENT_PREFIX
from workers.arena.segment import Segment
from workers.arena.shared_file import SHM_FOLDER
from workers.kernels.copy import checksum_pages, copy_pages, map_pages
from workers.kv_shard import Bytes, Int64

_HOLDS_PAGE = np.uint64(1 << 32)
Flags = npt.NDArray[np.bool_]


class Arena:
    """A page of one slot is `page_bytes` long and is charged as such."""

    def __init__(
        self,
        num_slots: int,
        page_bytes: int,
        name: str = "",
        budget: BudgetSpec = NO_BUDGET,
        folder: Path = SHM_FOLDER,
    ) -> None:
        """`name` becomes the segment's; "" makes one up. An arena without slots makes no files.

        Raises `DoesNotFit` when the system refuses, `SegmentTaken`, or `ArenaError` for a budget that cannot be shared.
        """
        self.num_slots = num_slots
        self.page_bytes = page_bytes
        self._segment: Segment | None = None
        self._budget: NodeBudget | None = None
        if num_slots:
            name = name or secrets.token_hex(8)
            if "/" in name:
                raise ArenaError(f"an arena cannot be named {name!r}: a name holds no slash")
            path = folder / (SEGMENT_PREFIX + name.removeprefix(SEGMENT_PREFIX))
            self._segment = Segment(path, num_slots, page_bytes)
            self._budget = self._join(budget, self._segment) if budget.num_bytes else None
        # Of memory a slot has: it may be in use or warm, written before, and mapped since it was written.
        self._has_memory: Flags = np.zeros(num_slots, np.bool_)
        self._in_use: Flags = np.zeros(num_slots, np.bool_)
        self._written: Flags = np.zeros(num_slots, np.bool_)
        self._mapped: Flags = np.zeros(num_slots, np.bool_)

    @property
    def path(self) -> Path | None:
        """The segment's file, None without slots."""
        return self._segment.path if self._segment else None

    @property
    def num_in_use(self) -> int:
        return int(self._in_use.sum())

    @property
    def num_warm(self) -> int:
        """Slots that hold nothing but still have their memory."""
        return int((self._has_memory & ~self._in_use).sum())

    @property
    def is_asked(self) -> bool:
        """Whether another arena of this node waits for what is kept warm here."""
        return self._budget is not None and self._budget.is_asked

    def reserve(self, slots: Int64) -> None:
        """Give all these slots memory, to be written. Raises `NoHostMemory`; then none of them holds anything."""
        segment = self._of()
        self.release(slots[self._in_use[slots]])
        cold, warm = slots[~self._has_memory[slots]], slots[self._has_memory[slots]]
        self._in_use[warm] = True
        if self._budget:
            self._budget.keep_warm(-len(warm) * self.page_bytes)
        try:
            self._grow(segment, cold, patience_s=0.0)
        except NoHostMemory:
            self.trim()  # what is kept warm here may be all that is missing
            try:
                self._grow(segment, cold, PATIENCE_S)
            except NoHostMemory:
                self.release(warm)
                raise
        self._has_memory[cold] = self._in_use[cold] = True

    def write(self, rows: Bytes, row_ids: Int64, slots: Int64) -> None:
        """rows[row_ids[i]], [*, page_bytes], to slot slots[i], which is reserved. Raises OSError."""
        segment = self._of()
        seen = self._written[slots]
        unmapped = slots[seen & ~self._mapped[slots]]
        map_pages(segment.slots, unmapped)
        self._mapped[unmapped] = True
        sums = np.empty(len(slots), np.uint64)
        sums[seen] = copy_pages(rows, row_ids[seen], segment.slots, slots[seen])
        for i in np.flatnonzero(~seen).tolist():
            # The checksum reads the page into the cache, from where it is written.
            sums[i] = checksum_pages(rows, row_ids[i : i + 1])[0]
            segment.write_fresh(int(slots[i]), rows[row_ids[i]])
        self._written[slots] = True
        segment.table[slots] = sums | _HOLDS_PAGE

    def read(self, slots: Int64, rows: Bytes, row_ids: Int64) -> None:
        """Slot slots[i] to rows[row_ids[i]], [*, page_bytes]. Raises `WrongChecksum`; then wrong pages are zeros.

        Zeros, because whoever gets such a page next computes with numbers: what is masked out must not be NaN.
        """
        segment = self._of()
        if not self._in_use[slots].all():
            first = int(np.flatnonzero(~self._in_use[slots])[0])
            raise WrongChecksum(f"arena slot {slots[first]} holds no page", first)
        found = copy_pages(segment.slots, slots, rows, row_ids) | _HOLDS_PAGE
        self._mapped[slots] = True
        wrong = np.flatnonzero(found != segment.table[slots])
        if len(wrong):
            rows[row_ids[wrong]] = 0
            first = int(wrong[0])
            stored, got = (int(value) & 0xFFFFFFFF for value in (segment.table[slots[first]], found[first]))
            raise WrongChecksum(
                f"arena slot {slots[first]} has checksum {got:#010x} where {stored:#010x} was written", first
            )

    def release(self, slots: Int64) -> None:
        """What these slots hold is not wanted any more. They stay warm until `trim`."""
        held = slots[self._in_use[slots]]
        self._in_use[held] = False
        if self._segment:
            self._segment.table[held] = 0
        if self._budget:
            self._budget.keep_warm(len(held) * self.page_bytes)

    def trim(self) -> None:
        """Give the memory of all slots that hold nothing back to the system."""
        warm = np.flatnonzero(self._has_memory & ~self._in_use)
        if self._segment and len(warm):
            self._segment.give_back(warm.tolist())
            self._has_memory[warm] = self._written[warm] = self._mapped[warm] = False
            if self._budget:
                self._budget.give_back(len(warm) * self.page_bytes)

    def close(self) -> None:
        """Remove the segment and give all memory back. Idempotent."""
        if self._segment:
            self._segment.close()
        if self._budget:
            self._budget.close()
        self._segment = self._budget = None

    def _of(self) -> Segment:
        if self._segment is None:
            raise NoHostMemory("this arena has no slots, or is closed")
        return self._segment

    def _join(self, budget: BudgetSpec, segment: Segment) -> NodeBudget:
        try:
            return NodeBudget(budget, segment.path)
        except BaseException:
            segment.close()
            raise

    def _grow(self, segment: Segment, slots: Int64, patience_s: float) -> None:
        """Charge and allocate, or with `NoHostMemory` neither."""
        if not len(slots):
            return
        num_bytes = len(slots) * self.page_bytes
        if self._budget:
            self._budget.charge(num_bytes, patience_s)
        try:
            segment.allocate(slots.tolist())
        except NoHostMemory:
            if self._budget:
                self._budget.keep_warm(num_bytes)
                self._budget.give_back(num_bytes)
            raise
