"""The file under /dev/shm that a rank's parked pages lie in, mapped: name, header, slots, and their memory.

Layout, bytes:
    [0, 64)             magic, number of slots, page bytes, slot bytes, name of the checksum
    [4096, table end)   one uint64 per slot: 1 << 32 | checksum where a page lies, else 0
    [table end, end)    slots, `slot_bytes` each: a page, filled up to whole pages of the system

The file is sparse. A slot has memory from `allocate` to `give_back`; only then it may be read or written, for a full
/dev/shm is an error of `allocate` and would be a SIGBUS later. The owner holds a lock on the file while it lives.
"""

import mmap
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workers.arena.errors import NoHostMemory, SegmentTaken
from workers.arena.shared_file import create_locked, punch, spare_bytes
from workers.errors import DoesNotFit
from workers.kernels.copy import CHECKSUM
from workers.kv_shard import Bytes

_MAGIC = b"PKARENA1"
_HEADER = struct.Struct("<8sQQQ8s")
_TABLE_OFFSET = 4096

Table = npt.NDArray[np.uint64]


class Segment:
    """`slots` is [num_slots, page_bytes] uint8, rows `slot_bytes` apart; `table` is [num_slots] uint64."""

    def __init__(self, path: Path, num_slots: int, page_bytes: int) -> None:
        """Raises `DoesNotFit` when the system refuses so large a file, `SegmentTaken` when its name is in use."""
        self.path = path
        self.slot_bytes = _whole_pages(page_bytes)
        self._first_slot = _TABLE_OFFSET + _whole_pages(8 * num_slots)
        num_bytes = self._first_slot + num_slots * self.slot_bytes
        try:
            self.fd = create_locked(path)
        except FileExistsError:
            raise SegmentTaken(f"{path} belongs to another living rank; give this one another name") from None
        try:
            os.ftruncate(self.fd, num_bytes)
            memory = mmap.mmap(self.fd, num_bytes)
            os.posix_fallocate(self.fd, 0, self._first_slot)
        except (OSError, OverflowError, ValueError) as error:
            self.close()
            size = f"an arena of {num_slots} pages, {num_bytes} bytes,"
            raise DoesNotFit(f"{size} cannot be made at {path}: {error}; ask for less host RAM") from None
        _HEADER.pack_into(memory, 0, _MAGIC, num_slots, page_bytes, self.slot_bytes, CHECKSUM.encode())
        self.table: Table = np.frombuffer(memory, np.uint64, num_slots, _TABLE_OFFSET)
        whole: Bytes = np.frombuffer(memory, np.uint8, num_slots * self.slot_bytes, self._first_slot)
        self.slots: Bytes = whole.reshape(num_slots, self.slot_bytes)[:, :page_bytes]

    def allocate(self, slots: list[int]) -> None:
        """Memory for these slots. All or, with `NoHostMemory`, none."""
        num_bytes = len(slots) * self.slot_bytes
        spare = spare_bytes(self.path.parent)
        if num_bytes > spare:  # asked before, for taking what there is and giving it back starves others meanwhile
            raise NoHostMemory(
                f"{num_bytes} bytes for parked pages are more than the {spare} that {self.path.parent} can spare"
            )
        try:
            for first, count in _runs(slots):
                os.posix_fallocate(self.fd, self._offset(first), count * self.slot_bytes)
        except OSError as error:
            self.give_back(slots)
            asked = f"{len(slots)} slots of {self.slot_bytes} bytes"
            raise NoHostMemory(
                f"the system has no memory for {asked} in {self.path.parent}: {error.strerror}"
            ) from None

    def write_fresh(self, slot: int, page: Bytes) -> None:
        """Write a slot whose memory nobody has touched yet; `page` is [page_bytes].

        Through the file: the system need not clear memory that is written whole, and no access faults. That is half the
        time of writing it through the mapping.
        """
        offset, rest = self._offset(slot), page.data
        while rest:
            written = os.pwrite(self.fd, rest, offset)
            offset, rest = offset + written, rest[written:]

    def give_back(self, slots: Iterable[int]) -> None:
        """The slots' memory goes back to the system."""
        for first, count in _runs(slots):
            punch(self.fd, self._offset(first), count * self.slot_bytes)

    def close(self) -> None:
        """Remove the name and give all memory back, even if somebody still has it mapped. Idempotent."""
        if self.fd < 0:
            return
        self.path.unlink(missing_ok=True)
        punch(self.fd, 0, max(os.fstat(self.fd).st_size, 1))
        os.close(self.fd)
        self.fd = -1

    def _offset(self, slot: int) -> int:
        return self._first_slot + slot * self.slot_bytes


def _whole_pages(num_bytes: int) -> int:
    return -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _runs(slots: Iterable[int]) -> list[tuple[int, int]]:
    """Slots as (first, count) of consecutive ones, ascending."""
    runs: list[tuple[int, int]] = []
    for slot in sorted(slots):
        if runs and runs[-1][0] + runs[-1][1] == slot:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs
