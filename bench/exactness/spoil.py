"""Changes one byte of a page that lies parked, in the arena's file itself: what a fault of the memory would do.

The file's head tells where its slots lie; the layout is that of `workers.arena.segment`.
"""

import mmap
import os
import struct
from pathlib import Path

from workers.arena.names import SEGMENT_PREFIX
from workers.arena.shared_file import SHM_FOLDER

_HEAD = struct.Struct("<8sQQQ")
_TABLE_OFFSET = 4096


def arena_path(prefix: str, rank: int, folder: Path = SHM_FOLDER) -> Path:
    return folder / f"{SEGMENT_PREFIX}{prefix}-{rank}"


def flip_bit(path: Path, slot: int, at: int = 0) -> None:
    """One bit of byte `at` of the page in `slot`, which must hold one."""
    fd = os.open(path, os.O_RDWR)
    try:
        _magic, num_slots, page_bytes, slot_bytes = _HEAD.unpack(os.pread(fd, _HEAD.size, 0))
        table_bytes = -(-8 * num_slots // mmap.PAGESIZE) * mmap.PAGESIZE
        offset = _TABLE_OFFSET + table_bytes + slot * slot_bytes + at % page_bytes
        os.pwrite(fd, bytes([os.pread(fd, 1, offset)[0] ^ 1]), offset)
    finally:
        os.close(fd)
