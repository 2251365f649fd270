"""Copies run in their order, beside whatever else the process does, and every one of them comes to an end."""

import errno
import os
import queue
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest

import workers.copier as copier_module
from scheduler.plan import CopyOutcome
from workers.arena.arena import Arena
from workers.arena.budget import BudgetSpec
from workers.arena.errors import WrongChecksum
from workers.copier import Copier, CopyDone
from workers.kv_shard import Bytes, HostKvShard, Int64, Mark, PageRows

PAGE = 8192
WAIT_S = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


class Desk:
    """A pool of random pages, an arena and a copier whose ends are waited for."""

    def __init__(self, folder: Path, name: str = "a", *, arena: Arena | None = None, num_slots: int = 16) -> None:
        self.pool: Bytes = np.random.default_rng(3).integers(0, 256, (24, PAGE), np.uint8)
        self.kv = GatedShard(self.pool)
        self.arena = arena or Arena(num_slots, PAGE, name, folder=folder)
        self.told: queue.SimpleQueue[CopyDone] = queue.SimpleQueue()
        self.copier = Copier(self.kv, self.arena, self.told.put)

    def ended(self) -> CopyDone:
        return self.told.get(timeout=WAIT_S)

    def taken(self) -> int:
        assert self.arena.path is not None
        return self.arena.path.stat().st_blocks * 512 - 2 * 4096

    def close(self) -> None:
        self.copier.close()
        self.arena.close()


class GatedShard(HostKvShard):
    """Fails where it is told to, and tells when it is asked for the first run, which waits for the gate."""

    def __init__(self, pool: Bytes) -> None:
        super().__init__(pool)
        self.gate, self.reached = threading.Event(), threading.Event()
        self.gate.set()
        self.failure: Exception | None = None

    def pages_out(self, page_ids: Int64, after: Mark) -> Generator[PageRows, None, None]:
        self.reached.set()
        assert self.gate.wait(WAIT_S)
        if self.failure is not None:
            raise self.failure
        yield from super().pages_out(page_ids, after)


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    desk = Desk(folder)
    yield desk
    desk.close()


def ids(*numbers: int) -> Int64:
    return np.array(numbers, np.int64)


def test_scattered_pages_come_back_byte_for_byte(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.kv_shard._HOST_RUN_BYTES", 2 * PAGE)
    before = desk.pool.copy()
    desk.copier.copy_out(7, ids(9, 1, 20, 3, 8), ids(15, 0, 7, 8, 2))
    out = desk.ended()
    desk.pool[[9, 1, 20, 3, 8]] = 0
    desk.copier.copy_in(8, ids(15, 0, 7, 8, 2), ids(4, 23, 9, 0, 1))
    back = desk.ended()
    np.testing.assert_array_equal(desk.pool[[4, 23, 9, 0, 1]], before[[9, 1, 20, 3, 8]])
    for done, copy_id in ((out, 7), (back, 8)):
        assert (done.copy_id, done.outcome, done.reason, done.num_bytes) == (copy_id, CopyOutcome.DONE, "", 5 * PAGE)
        assert done.seconds > 0


def test_what_is_freed_in_a_plan_can_be_copied_to_in_the_same(desk: Desk) -> None:
    slots = np.arange(16)
    desk.copier.copy_out(1, slots, slots)
    desk.copier.free(slots)
    desk.copier.copy_out(2, slots + 8, slots)
    desk.copier.copy_in(3, slots, slots)
    before = desk.pool[8:].copy()
    assert [(desk.ended().copy_id, desk.arena.num_slots) for _ in range(3)] == [(1, 16), (2, 16), (3, 16)]
    np.testing.assert_array_equal(desk.pool[:16], before)
    assert desk.arena.num_in_use == 16


@pytest.mark.parametrize("way_in", [True, False])
def test_a_copy_that_is_broken_off_has_let_go_of_its_pages_before_its_end_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, way_in: bool
) -> None:
    seen: list[str] = []

    def pages(page_ids: Int64, _after: Mark) -> Generator[PageRows, None, None]:
        try:
            yield desk.pool, page_ids
        finally:
            seen.append("let go")

    def fail(*_: object) -> None:
        raise WrongChecksum("a slot is wrong", 0) if way_in else OSError("no")

    def tell(done: CopyDone) -> None:
        seen.append(done.outcome.value)
        desk.told.put(done)

    monkeypatch.setattr(desk.kv, "pages_in" if way_in else "pages_out", pages)
    monkeypatch.setattr(desk.arena, "read" if way_in else "write", fail)
    monkeypatch.setattr(desk.copier, "_on_done", tell)
    (desk.copier.copy_in if way_in else desk.copier.copy_out)(1, ids(0), ids(0))
    desk.ended()
    assert seen == ["let go", "corrupt" if way_in else "failed"]


def test_a_flipped_bit_is_corrupt_and_said_of_which_slot_and_page(desk: Desk) -> None:
    desk.copier.copy_out(1, ids(5, 6), ids(0, 1))
    desk.ended()
    assert desk.arena.path is not None
    with desk.arena.path.open("r+b") as file:
        file.seek(-15 * PAGE + 100, os.SEEK_END)  # slot 1 of 16
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    desk.copier.copy_in(2, ids(0, 1), ids(10, 11))
    done = desk.ended()
    assert (done.outcome, done.num_bytes) == (CopyOutcome.CORRUPT, 0)
    assert done.reason.startswith("arena slot 1 has checksum 0x")
    assert done.reason.endswith("was written; it was to go to page 11")


def test_no_memory_is_a_failure_that_takes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_fd: int, _offset: int, _num_bytes: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        desk.copier.copy_out(1, ids(5, 6), ids(0, 1))
        done = desk.ended()
    assert (done.outcome, done.num_bytes) == (CopyOutcome.FAILED, 0)
    assert "the system has no memory for 2 slots of 8192 bytes" in done.reason
    assert (desk.taken(), desk.arena.num_in_use) == (0, 0)
    desk.copier.copy_out(2, ids(5, 6), ids(0, 1))
    assert desk.ended().outcome is CopyOutcome.DONE


def test_an_error_nobody_thought_of_is_a_failure_and_the_next_copy_goes_on(desk: Desk) -> None:
    desk.kv.failure = RuntimeError("the device is gone")
    desk.copier.copy_out(1, ids(5), ids(0))
    done = desk.ended()
    assert (done.outcome, done.reason) == (CopyOutcome.FAILED, "RuntimeError: the device is gone")
    assert desk.arena.num_in_use == 0
    desk.kv.failure = None
    desk.copier.copy_out(2, ids(5), ids(0))
    assert desk.ended().outcome is CopyOutcome.DONE


def test_closing_abandons_a_copy_under_way_and_those_behind_it(folder: Path) -> None:
    desk = Desk(folder)
    desk.kv.gate.clear()
    desk.copier.copy_out(1, ids(5), ids(0))
    desk.copier.copy_out(2, ids(6), ids(1))
    assert desk.kv.reached.wait(WAIT_S)
    closing = threading.Thread(target=desk.copier.close)
    closing.start()
    while not desk.copier._closing:
        pass
    desk.kv.gate.set()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert (desk.told.empty(), desk.copier._thread.is_alive()) == (True, False)
    desk.copier.close()
    desk.arena.close()
    assert list(folder.iterdir()) == []


def test_freed_memory_goes_back_when_no_copy_came_for_a_while(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier_module, "_IDLE_S", 0.0)

    class ToldArena(Arena):
        trimmed = threading.Event()

        def trim(self) -> None:
            super().trim()
            self.trimmed.set()

    desk = Desk(folder, arena=ToldArena(16, PAGE, folder=folder))
    desk.copier.copy_out(1, ids(5, 6, 7), ids(0, 1, 2))
    desk.ended()
    assert desk.taken() == 3 * PAGE
    desk.copier.free(ids(0, 2))
    assert ToldArena.trimmed.wait(WAIT_S)
    assert (desk.taken(), desk.arena.num_in_use) == (PAGE, 1)
    desk.close()


def test_what_one_group_frees_is_there_for_another(folder: Path) -> None:
    budget = BudgetSpec(name="node", num_bytes=16 * PAGE)
    first, second = (Desk(folder, arena=Arena(16, PAGE, name, budget, folder)) for name in "ab")
    slots = np.arange(12)
    first.copier.copy_out(1, slots, slots)
    assert first.ended().outcome is CopyOutcome.DONE
    second.copier.copy_out(2, slots, slots)
    refused = second.ended()
    assert refused.outcome is CopyOutcome.FAILED
    assert "98304 bytes more exceed this node's budget" in refused.reason
    first.copier.free(slots)
    second.copier.copy_out(3, slots, slots)
    assert second.ended().outcome is CopyOutcome.DONE
    assert (first.taken(), second.taken()) == (0, 12 * PAGE)
    first.close()
    second.close()


def test_the_copy_thread_gives_way_to_those_that_compute(folder: Path) -> None:
    niceness: queue.SimpleQueue[int] = queue.SimpleQueue()
    arena = Arena(2, PAGE, folder=folder)
    copier = Copier(
        HostKvShard(np.ones((2, PAGE), np.uint8)),
        arena,
        lambda _done: niceness.put(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())),
    )
    copier.copy_out(1, ids(0), ids(0))
    assert niceness.get(timeout=WAIT_S) > os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    copier.close()
    arena.close()
