"""A rank's bounded host memory where parked pages lie: `num_slots` slots of one page each.

Memory is touched only when a slot is first written, and given back to the system when the slot is released, so that
what is resident follows what is in use. Who may use a slot is the engine's to say; this class only maps memory.
"""

import mmap
from collections.abc import Sequence

import numpy as np

from workers.errors import DoesNotFit
from workers.kv_shard import Bytes


class Arena:
    """`host` is [num_slots, page_bytes] uint8; rows are `slot_bytes` apart, a multiple of the system's page."""

    def __init__(self, num_slots: int, page_bytes: int) -> None:
        """Raises `DoesNotFit` when the system refuses so much address space."""
        self.num_slots = num_slots
        self.page_bytes = page_bytes
        self.slot_bytes = -(-page_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        # Anonymous now; a named shared segment that outlives the process can take its place here.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        num_bytes = max(num_slots, 1) * self.slot_bytes
        try:
            self._memory = mmap.mmap(-1, num_bytes, flags=flags)
        except OSError as error:
            raise DoesNotFit(f"an arena of {num_slots} pages, {num_bytes} bytes, cannot be mapped: {error}") from None
        whole: Bytes = np.frombuffer(self._memory, dtype=np.uint8).reshape(-1, self.slot_bytes)
        self.host: Bytes = whole[:num_slots, :page_bytes]

    def release(self, slots: Sequence[int]) -> None:
        """Give the slots' memory back to the system; they read as zeros until written again."""
        for first, count in _runs(sorted(slots)):
            self._memory.madvise(mmap.MADV_DONTNEED, first * self.slot_bytes, count * self.slot_bytes)

    def close(self) -> None:
        """Give all memory back. The `host` array must not be used afterwards."""
        if self.num_slots:
            self._memory.madvise(mmap.MADV_DONTNEED)
        # The mapping itself goes with the last array that refers to it.
        self.host = np.empty((0, self.page_bytes), dtype=np.uint8)


def _runs(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending slots as (first, count) of consecutive ones."""
    runs: list[tuple[int, int]] = []
    for slot in slots:
        if runs and runs[-1][0] + runs[-1][1] == slot:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs
