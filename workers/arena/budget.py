"""How much host memory all arenas of a node may take together: a small file under /dev/shm that each of them charges.

Layout, bytes:
    [0, 64)     magic, the budget in bytes, until when (CLOCK_MONOTONIC, ns) somebody asks for what others could spare
    [64, end)   one entry per arena: its segment's file name, or zeros; bytes in use; bytes kept warm

Everything charged is memory the arena has: what holds pages, and what is kept warm for the next ones. An arena that
finds no room for more asks the others, by the time in the header, to give back what they keep warm, and tries again for
`PATIENCE_S`; they look whenever they have something to spare. So the budget is never exceeded, and a slot that was
freed is as good as free for another group. Entries whose owners have died are taken out by whoever needs room.
"""

import fcntl
import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from workers.arena.errors import ArenaError, NoHostMemory
from workers.arena.names import BUDGET_PREFIX
from workers.arena.shared_file import is_at, locked, open_own, remove_if_dead

PATIENCE_S = 0.5
_POLL_S = 0.01
_ASKED_NS = 100_000_000  # how long a question stands; it is repeated until it is answered
_MAGIC = b"PKBUDGT1"
_HEADER = struct.Struct("<8sQQ")
_MAX_NAME = 112
_ENTRY = struct.Struct(f"<{_MAX_NAME}sQQ")
_FIRST_ENTRY, _MAX_ENTRIES = 64, 256
_WANTED_OFFSET = 16
_NUM_BYTES = _FIRST_ENTRY + _MAX_ENTRIES * _ENTRY.size


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpec:
    """Arenas that name the same budget share it; they must agree on `num_bytes`. 0: no bound but the slots."""

    name: str = ""
    num_bytes: int = 0


NO_BUDGET = BudgetSpec()


@dataclass(frozen=True, slots=True)
class _Entry:
    owner: str
    in_use: int
    warm: int


_NOBODY = _Entry("", 0, 0)


class NodeBudget:
    """One arena's account. One thread at a time."""

    def __init__(self, spec: BudgetSpec, segment: Path) -> None:
        """Open an account for the arena in this segment, which must be locked by now. Raises `ArenaError`."""
        if not spec.name or "/" in spec.name:
            raise ArenaError(f"a budget cannot be named {spec.name!r}; it needs a name that this node's arenas share")
        if len(segment.name.encode()) > _MAX_NAME:
            raise ArenaError(f"the segment's name {segment.name!r} is longer than {_MAX_NAME} bytes")
        self._num_bytes = spec.num_bytes
        self._folder, self._owner = segment.parent, segment.name
        self._path = segment.parent / (BUDGET_PREFIX + spec.name.removeprefix(BUDGET_PREFIX))
        self._in_use = self._warm = 0
        self._fd = _open_locked(self._path)
        try:
            self._memory = mmap.mmap(self._fd, _NUM_BYTES)
            self._index = self._join()
        except BaseException:
            os.close(self._fd)
            raise
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def charge(self, num_bytes: int, patience_s: float) -> None:
        """Take so much more into use, waiting so long for what others can spare. Raises `NoHostMemory`."""
        deadline = time.monotonic() + patience_s
        while (short := self._try_charge(num_bytes)) is not None:
            in_use, warm = short
            if in_use + num_bytes > self._num_bytes or time.monotonic() >= deadline:
                raise NoHostMemory(
                    f"{num_bytes} bytes more exceed this node's budget {self._path.name}: "
                    f"{in_use} of {self._num_bytes} bytes are in use, {warm} are being given back"
                )
            time.sleep(_POLL_S)

    def keep_warm(self, num_bytes: int) -> None:
        """So much is no longer in use, but not given back yet; negative: it is in use again."""
        self._set(self._in_use - num_bytes, self._warm + num_bytes)

    def give_back(self, num_bytes: int) -> None:
        """So much of what was kept warm has gone back to the system."""
        self._set(self._in_use, self._warm - num_bytes)

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for memory that is kept warm."""
        (until,) = struct.unpack_from("<Q", self._memory, _WANTED_OFFSET)
        return bool(until > time.monotonic_ns())

    def close(self) -> None:
        """Close the account; with the last one the file goes. Idempotent."""
        if self._fd < 0:
            return
        with locked(self._fd):
            self._write(self._index, _NOBODY)
            self._drop_dead()
            if not any(entry.owner for entry in self._entries()) and is_at(self._fd, self._path):
                self._path.unlink()
        os.close(self._fd)
        self._fd = -1

    def _join(self) -> int:
        """Take an entry; its index."""
        magic, num_bytes, _until = _HEADER.unpack_from(self._memory, 0)
        self._drop_dead()
        entries = self._entries()
        if magic != _MAGIC or not any(entry.owner for entry in entries):
            _HEADER.pack_into(self._memory, 0, _MAGIC, self._num_bytes, 0)
        elif num_bytes != self._num_bytes:
            raise ArenaError(f"the budget {self._path} has {num_bytes} bytes, not {self._num_bytes}: it needs one size")
        free = [index for index, entry in enumerate(entries) if not entry.owner]
        if not free:
            raise ArenaError(f"the budget {self._path} is shared by {_MAX_ENTRIES} arenas already, its bound")
        self._write(free[0], _Entry(self._owner, 0, 0))
        return free[0]

    def _try_charge(self, num_bytes: int) -> tuple[int, int] | None:
        """None when it is charged, else what all have in use, and what the others keep warm."""
        with locked(self._fd):
            for attempt in range(2):
                entries = self._entries()
                in_use = sum(entry.in_use for entry in entries)
                warm = sum(entry.warm for entry in entries)
                if in_use + warm + num_bytes <= self._num_bytes:
                    self._in_use += num_bytes
                    self._write(self._index, _Entry(self._owner, self._in_use, self._warm))
                    return None
                if attempt == 0 and not self._drop_dead():
                    break
            until = time.monotonic_ns() + _ASKED_NS
            struct.pack_into("<Q", self._memory, _WANTED_OFFSET, until)
            return in_use, warm

    def _drop_dead(self) -> bool:
        """Take out the entries of arenas that are gone, and what is left of them; whether there were any."""
        dead = [
            index
            for index, entry in enumerate(self._entries())
            if entry.owner and entry.owner != self._owner and remove_if_dead(self._folder / entry.owner)
        ]
        for index in dead:
            self._write(index, _NOBODY)
        return bool(dead)

    def _entries(self) -> list[_Entry]:
        rows = _ENTRY.iter_unpack(self._memory[_FIRST_ENTRY:_NUM_BYTES])
        return [_Entry(owner, in_use, warm) if (owner := _name(name)) else _NOBODY for name, in_use, warm in rows]

    def _set(self, in_use: int, warm: int) -> None:
        with locked(self._fd):
            self._in_use, self._warm = in_use, warm
            self._write(self._index, _Entry(self._owner, in_use, warm))

    def _write(self, index: int, entry: _Entry) -> None:
        place = _FIRST_ENTRY + index * _ENTRY.size
        _ENTRY.pack_into(self._memory, place, os.fsencode(entry.owner), entry.in_use, entry.warm)


def remove_dead_budget(path: Path) -> None:
    """Remove a budget that no living arena shares."""
    fd = open_own(path)
    if fd is None:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        owners = [_name(row[0]) for row in _ENTRY.iter_unpack(_read_entries(fd))]
        if all(remove_if_dead(path.parent / owner) for owner in owners if owner) and is_at(fd, path):
            path.unlink()
    finally:
        os.close(fd)


def _name(name: bytes) -> str:
    """The owner's file; "" for what names none, so that a damaged budget hinders no start."""
    owner = os.fsdecode(name.rstrip(b"\0"))
    return "" if "\0" in owner or "/" in owner else owner


def _read_entries(fd: int) -> bytes:
    """All of them, or none of a file that nobody has finished."""
    entries = os.pread(fd, _NUM_BYTES - _FIRST_ENTRY, _FIRST_ENTRY)
    return entries[: len(entries) // _ENTRY.size * _ENTRY.size]


def _open_locked(path: Path) -> int:
    """The budget's file, locked, made if it is not there. Raises `ArenaError`."""
    while True:
        fd = open_own(path, os.O_CREAT)
        if fd is None:
            raise ArenaError(f"the budget {path} cannot be opened: it belongs to another user, or is no file")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if is_at(fd, path):
                os.posix_fallocate(fd, 0, _NUM_BYTES)
                return fd
        except OSError as error:
            os.close(fd)
            raise ArenaError(f"the budget {path} cannot be made: {error}") from None
        os.close(fd)  # it was removed before it was locked
