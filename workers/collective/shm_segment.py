"""The file under /dev/shm through which the ranks of one host exchange data: made, found, mapped, and gone again.

Layout, bytes:
    [0, 4096)            one 64-byte cache line per rank: uint32 sequence flag, uint32 number of sleepers on it
    [4096, 8192)         uint32 abort word; uint32 world size and uint32 slot bytes, which must agree on all ranks
    [8192, end)          2 x world slots of `slot_bytes`: (parity, rank) at 8192 + (parity * world + rank) * slot_bytes

Rank 0 makes the file, mode 0600, and gives it its name when it is whole; once all ranks have mapped it, the name is
removed, so that a killed group leaves nothing. Until then rank 0 holds a lock on it: a file whose lock is free belongs
to a rank 0 that was killed in between, and the next segment made in that folder removes it.
"""

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workers.collective.errors import CollectiveTimeout

MAX_RANKS = 64
ABORT_OFFSET = 4096
HEADER_BYTES = 8192
_SHAPE_OFFSET = ABORT_OFFSET + 64
_PREFIX = "parkade-collective-"
_GRACE_S = 10.0  # a file this young may be between its creation and its lock
_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """`slot_bytes` a multiple of 64; `world_size` in [2, 64]."""

    world_size: int
    slot_bytes: int

    @property
    def num_bytes(self) -> int:
        return HEADER_BYTES + 2 * self.world_size * self.slot_bytes


def new_segment_path(unique: str, folder: str = "/dev/shm") -> str:  # shared memory's own place
    """The path of a group's segment; `unique` names the group on this machine."""
    return str(Path(folder) / f"{_PREFIX}{unique}")


class Segment:
    """A mapped segment. `unlink` removes its name (rank 0 only); the memory lives until every rank has let go."""

    def __init__(self, memory: mmap.mmap, path: Path, lock_fd: int | None) -> None:
        self.memory = memory
        self._path = path
        self._lock_fd = lock_fd

    def unlink(self) -> None:
        """Idempotent; does nothing on ranks other than 0."""
        if self._lock_fd is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._lock_fd)
            self._lock_fd = None


def create_segment(path: Path, shape: SegmentShape) -> Segment:
    """Rank 0's part. Raises FileExistsError when a live group uses `path`."""
    sweep_stale_segments(path.parent)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.posix_fallocate(fd, 0, shape.num_bytes)  # a full /dev/shm is an error now, not a SIGBUS later
        memory = mmap.mmap(fd, shape.num_bytes)
        struct.pack_into("<II", memory, _SHAPE_OFFSET, shape.world_size, shape.slot_bytes)
        os.link(unfinished, path)  # unlike a rename, refuses to replace
    except BaseException:
        os.close(fd)
        raise
    finally:
        unfinished.unlink(missing_ok=True)
    return Segment(memory, path, fd)


def attach_segment(path: Path, shape: SegmentShape, rank: int, timeout_s: float) -> Segment:
    """Map what rank 0 made, waiting for it. Raises CollectiveTimeout, ValueError when the shapes differ."""
    fd = _poll(lambda: _try_open(path), rank, timeout_s, path)
    try:
        found = os.fstat(fd).st_size
        if found != shape.num_bytes:
            raise ValueError(f"{path} has {found} bytes, rank {rank} expects {shape.num_bytes}: world sizes differ")
        memory = mmap.mmap(fd, shape.num_bytes)
    finally:
        os.close(fd)
    if struct.unpack_from("<II", memory, _SHAPE_OFFSET) != (shape.world_size, shape.slot_bytes):
        raise ValueError(f"{path} was made for another world or slot size than rank {rank}'s {shape}")
    return Segment(memory, path, None)


def sweep_stale_segments(folder: Path, grace_s: float = _GRACE_S) -> None:
    """Remove segments whose rank 0 died before it could unlink them. Files of other users are left alone."""
    for path in folder.glob(f"{_PREFIX}*"):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(fd).st_mtime > grace_s:
                path.unlink(missing_ok=True)
        except BlockingIOError:
            pass
        finally:
            os.close(fd)


def _try_open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _poll(attempt: Callable[[], int | None], rank: int, timeout_s: float, path: Path) -> int:
    deadline = time.monotonic() + timeout_s
    while (fd := attempt()) is None:
        if time.monotonic() > deadline:
            raise CollectiveTimeout(what=f"rank 0 to make {path}", rank=rank, timeout_s=timeout_s)
        time.sleep(_POLL_S)
    return fd
