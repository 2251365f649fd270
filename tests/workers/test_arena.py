"""The arena's memory follows what is in use, and what comes out of a slot is what went in, or an error."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from workers.arena.arena import Arena
from workers.arena.errors import ArenaError, NoHostMemory, SegmentTaken, WrongChecksum
from workers.arena.shared_file import RESERVE_BYTES, spare_bytes
from workers.errors import DoesNotFit
from workers.kv_shard import Bytes, Int64

PAGE = 5000  # not a multiple of the system's page
SLOT = 8192


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def ids(*numbers: int) -> Int64:
    return np.array(numbers, np.int64)


def pages(num_pages: int) -> Bytes:
    return np.random.default_rng(7).integers(0, 256, (num_pages, PAGE), np.uint8)


def taken(arena: Arena) -> int:
    """Bytes of memory that the segment has beyond its header and table, two pages of the system."""
    assert arena.path is not None
    return arena.path.stat().st_blocks * 512 - 2 * 4096


def flip_a_bit(arena: Arena, slot: int, byte: int) -> None:
    """As bad memory would."""
    assert arena.path is not None
    data = bytearray(arena.path.read_bytes())
    at = len(data) - (arena.num_slots - slot) * SLOT + byte
    with arena.path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 0x10]))


def test_pages_come_back_as_they_went_in_cold_warm_and_read_before(folder: Path) -> None:
    arena, source = Arena(6, PAGE, folder=folder), pages(9)
    for page_ids in (ids(8, 0, 3), ids(1, 2, 4), ids(5, 6, 7)):  # cold; written but never read; mapped by reading
        slots, back = ids(4, 1, 5), np.zeros((9, PAGE), np.uint8)
        arena.reserve(slots)
        arena.write(source, page_ids, slots)
        if page_ids[0] != 8:
            arena.read(slots, back, ids(2, 0, 1))
            np.testing.assert_array_equal(back[[2, 0, 1]], source[page_ids])
            assert not back[3:].any()
    arena.close()


def test_memory_is_there_from_reserve_to_trim_and_nowhere_else(folder: Path) -> None:
    arena = Arena(8, PAGE, folder=folder)
    assert taken(arena) == 0
    arena.reserve(ids(1, 2, 6))
    assert (taken(arena), arena.num_in_use, arena.num_warm) == (3 * SLOT, 3, 0)
    arena.write(pages(3), ids(0, 1, 2), ids(1, 2, 6))
    arena.release(ids(1, 6))
    assert (taken(arena), arena.num_in_use, arena.num_warm) == (3 * SLOT, 1, 2)
    arena.reserve(ids(6, 7))  # one warm, one new
    assert (taken(arena), arena.num_in_use, arena.num_warm) == (4 * SLOT, 3, 1)
    arena.trim()
    assert (taken(arena), arena.num_in_use, arena.num_warm) == (3 * SLOT, 3, 0)
    back = np.zeros((1, PAGE), np.uint8)
    arena.read(ids(2), back, ids(0))
    np.testing.assert_array_equal(back[0], pages(3)[1])
    arena.close()


def test_close_gives_everything_back_though_somebody_has_it_open(folder: Path) -> None:
    arena = Arena(4, PAGE, folder=folder)
    arena.reserve(ids(0, 3))
    assert arena.path is not None
    with arena.path.open("rb") as still_open:
        arena.close()
        assert os.fstat(still_open.fileno()).st_blocks == 0
    assert list(folder.iterdir()) == []
    arena.close()


def test_the_segment_has_its_name_and_is_nobody_elses_to_read(folder: Path) -> None:
    named = Arena(2, PAGE, "parkade-arena-a1b2-group-0-1", folder=folder)
    bare, made_up = Arena(2, PAGE, "x", folder=folder), Arena(2, PAGE, folder=folder)
    paths = [arena.path for arena in (named, bare, made_up) if arena.path]
    assert [path.name for path in paths[:2]] == ["parkade-arena-a1b2-group-0-1", "parkade-arena-x"]
    assert paths[2].name.startswith("parkade-arena-")
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    with pytest.raises(SegmentTaken, match="parkade-arena-x belongs to another living rank"):
        Arena(2, PAGE, "x", folder=folder)
    with pytest.raises(ArenaError, match="a name holds no slash"):
        Arena(2, PAGE, "../x", folder=folder)
    for arena in (named, bare, made_up):
        arena.close()


def test_an_arena_beyond_the_address_space_is_refused_with_its_size_and_leaves_no_file(folder: Path) -> None:
    with pytest.raises(DoesNotFit, match=r"an arena of 1099511627776 pages, \d+ bytes, cannot be made"):
        Arena(1 << 40, 1 << 20, folder=folder)
    assert list(folder.iterdir()) == []


def test_an_arena_without_slots_makes_no_file(folder: Path) -> None:
    arena = Arena(0, PAGE, folder=folder)
    arena.release(ids())
    arena.trim()
    assert (arena.path, arena.num_warm, list(folder.iterdir())) == (None, 0, [])
    with pytest.raises(NoHostMemory, match="has no slots"):
        arena.reserve(ids(0))
    arena.close()


def test_when_the_system_has_no_memory_nothing_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arena, allocate = Arena(8, PAGE, folder=folder), os.posix_fallocate
    arena.reserve(ids(3))
    room = [2]

    def allocate_two_runs(fd: int, offset: int, num_bytes: int) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(fd, offset, num_bytes)

    monkeypatch.setattr(os, "posix_fallocate", allocate_two_runs)
    with pytest.raises(NoHostMemory, match=r"no memory for 3 slots of 8192 bytes in .*: No space left on device"):
        arena.reserve(ids(0, 2, 6))
    assert (taken(arena), arena.num_in_use, arena.num_warm) == (SLOT, 1, 0)
    arena.close()


def test_the_last_of_a_shared_folder_is_left_to_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of theirs that have no memory yet would get a SIGBUS: so nothing is tried that might take the last."""
    arena = Arena(8, PAGE, folder=folder)
    size = SimpleNamespace(f_frsize=SLOT, f_blocks=32, f_bavail=4)  # a sixteenth, two slots, stays
    monkeypatch.setattr(os, "statvfs", lambda _: size)
    monkeypatch.setattr(os, "posix_fallocate", pytest.fail)
    with pytest.raises(NoHostMemory, match=rf"{3 * SLOT} bytes for parked pages are more than the {2 * SLOT} that"):
        arena.reserve(ids(0, 1, 2))
    monkeypatch.undo()
    arena.reserve(ids(0, 1, 2))
    arena.close()


def test_what_is_reserved_of_a_large_folder_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_frsize=1 << 20, f_blocks=1 << 20, f_bavail=200))
    assert spare_bytes(folder) == (200 << 20) - RESERVE_BYTES


def test_memory_kept_warm_is_given_up_when_the_system_has_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, allocate = Arena(4, PAGE, folder=folder), os.posix_fallocate
    arena.reserve(ids(0, 1))
    arena.release(ids(0, 1))

    def allocate_up_to_two_slots(fd: int, offset: int, num_bytes: int) -> None:
        if taken(arena) + num_bytes > 2 * SLOT:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(fd, offset, num_bytes)

    monkeypatch.setattr(os, "posix_fallocate", allocate_up_to_two_slots)
    arena.reserve(ids(2, 3))
    assert (taken(arena), arena.num_in_use, arena.num_warm) == (2 * SLOT, 2, 0)
    arena.close()


def test_a_flipped_bit_is_found_and_its_page_is_left_as_zeros(folder: Path) -> None:
    arena, source, back = Arena(4, PAGE, folder=folder), pages(3), np.ones((3, PAGE), np.uint8)
    slots = ids(2, 0, 1)
    arena.reserve(slots)
    arena.write(source, ids(0, 1, 2), slots)
    flip_a_bit(arena, slot=0, byte=4999)
    with pytest.raises(WrongChecksum, match=r"arena slot 0 has checksum 0x.* where 0x.* was written") as caught:
        arena.read(slots, back, ids(0, 1, 2))
    assert caught.value.index == 1
    np.testing.assert_array_equal(back[[0, 2]], source[[0, 2]])
    assert not back[1].any()
    arena.close()


def test_a_freed_slot_holds_no_page(folder: Path) -> None:
    arena, back = Arena(4, PAGE, folder=folder), np.ones((1, PAGE), np.uint8)
    arena.reserve(ids(2))
    arena.write(pages(1), ids(0), ids(2))
    arena.release(ids(2))
    with pytest.raises(WrongChecksum, match="arena slot 2 holds no page"):
        arena.read(ids(2), back, ids(0))
    arena.reserve(ids(2))
    with pytest.raises(WrongChecksum, match="arena slot 2 has checksum"):
        arena.read(ids(2), back, ids(0))
    arena.close()
