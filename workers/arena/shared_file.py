"""Files under /dev/shm that belong to living processes: locked by their owners from birth to death.

A lock taken with flock ends with the last process that holds the file open, however it dies. So a file whose lock can
be taken has no owner any more, and whoever takes it may remove it.
"""

import ctypes
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHM_FOLDER = Path("/dev/shm")
# Others have files there that got their memory promised but not given, such as Ray's object store: where nothing is
# left, touching them is a SIGBUS. So much is left alone, of a small folder a share of it.
RESERVE_BYTES = 128 << 20
_RESERVED_SHARE = 16
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)  # calls through it leave the GIL, those of Python's mmap do not
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def create_locked(path: Path) -> int:
    """A new file, mode 0600, locked: its descriptor. Raises FileExistsError."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if is_at(fd, path):
            return fd
        os.close(fd)  # somebody found it before it was locked, and removed it


@contextmanager
def locked(fd: int) -> Iterator[None]:
    """Alone with the file, among those that lock it."""
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def open_own(path: Path, flags: int = 0) -> int | None:
    """The descriptor of a regular file of this user; None when there is none."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except OSError:
        return None
    status = os.fstat(fd)
    if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode):
        return fd
    os.close(fd)
    return None


def is_at(fd: int, path: Path) -> bool:
    """Whether `path` still names this file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def remove_if_dead(path: Path) -> bool:
    """Remove a file whose owner is gone; whether there is none now. Another user's file is left alone."""
    fd = open_own(path)
    if fd is None:
        return not path.exists()
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_at(fd, path):
            path.unlink()
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def spare_bytes(folder: Path) -> int:
    """What arenas may still take of the file system that `folder` lies on. Raises OSError."""
    found = os.statvfs(folder)
    reserve = min(RESERVE_BYTES, found.f_blocks * found.f_frsize // _RESERVED_SHARE)
    return max(0, found.f_bavail * found.f_frsize - reserve)


def punch(fd: int, offset: int, num_bytes: int) -> None:
    """Give this memory back to the system; it reads as zeros. Raises OSError."""
    if num_bytes and _libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, num_bytes):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
