"""Arenas of a node share a budget that is never exceeded; and what the dead have left is nobody's."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from workers.arena.arena import Arena
from workers.arena.budget import BudgetSpec
from workers.arena.errors import ArenaError, NoHostMemory
from workers.arena.sweep import sweep_dead_segments
from workers.kv_shard import Int64

PAGE = 4096
TEN = BudgetSpec(name="node", num_bytes=10 * PAGE)
OWNER = """
import sys
from pathlib import Path
import numpy as np
from workers.arena.arena import Arena
from workers.arena.budget import BudgetSpec
arena = Arena(8, 4096, "dead", BudgetSpec(name="node", num_bytes=40960), Path(sys.argv[1]))
arena.reserve(np.arange(8))
alone = Arena(8, 4096, "alone", BudgetSpec(name="lonely", num_bytes=40960), Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture
def owner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with 8 of the 10 pages of the budget in use."""
    command = [sys.executable, "-c", OWNER, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def slots(count: int) -> Int64:
    return np.arange(count, dtype=np.int64)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_over_budget_is_refused_with_the_numbers_and_takes_nothing(folder: Path) -> None:
    first, second = Arena(8, PAGE, "a", TEN, folder), Arena(8, PAGE, "b", TEN, folder)
    first.reserve(slots(6))
    with pytest.raises(NoHostMemory, match=r"20480 bytes more exceed .*budget-node: 24576 of 40960 bytes are in use"):
        second.reserve(slots(5))
    second.reserve(slots(4))
    second.close()
    first.reserve(slots(8))
    first.close()
    assert names(folder) == []


def test_what_an_arena_keeps_warm_is_its_own_to_use(folder: Path) -> None:
    arena, other = Arena(30, PAGE, "a", TEN, folder), Arena(8, PAGE, "b", TEN, folder)
    arena.reserve(slots(10))
    arena.release(slots(10))
    assert arena.num_warm == 10
    arena.reserve(slots(30)[20:])  # other slots: what is warm has to go first
    assert (arena.num_in_use, arena.num_warm) == (10, 0)
    with pytest.raises(NoHostMemory, match="40960 of 40960 bytes are in use, 0 are being given back"):
        other.reserve(slots(1))
    arena.close()
    other.reserve(slots(8))
    other.close()


def test_who_needs_room_asks_the_others_for_what_they_keep_warm(folder: Path) -> None:
    keeper, asker = Arena(10, PAGE, "a", TEN, folder), Arena(8, PAGE, "b", TEN, folder)
    keeper.reserve(slots(10))
    keeper.release(slots(7))
    assert not keeper.is_asked
    asking = threading.Thread(target=asker.reserve, args=(slots(6),))
    asking.start()
    while not keeper.is_asked:
        pass
    keeper.trim()
    asking.join()
    assert (keeper.num_in_use, keeper.num_warm, asker.num_in_use) == (3, 0, 6)
    keeper.close()
    asker.close()


def test_memory_that_nobody_gives_back_is_refused_after_a_while(folder: Path) -> None:
    keeper, asker = Arena(10, PAGE, "a", TEN, folder), Arena(8, PAGE, "b", TEN, folder)
    keeper.reserve(slots(10))
    keeper.release(slots(4))
    with pytest.raises(NoHostMemory, match="24576 of 40960 bytes are in use, 16384 are being given back"):
        asker.reserve(slots(2))
    keeper.close()
    asker.close()


def test_a_budget_has_one_size_and_is_private(folder: Path) -> None:
    arena = Arena(8, PAGE, "a", TEN, folder)
    assert stat.S_IMODE((folder / "parkade-budget-node").stat().st_mode) == 0o600
    with pytest.raises(ArenaError, match="has 40960 bytes, not 8192: it needs one size"):
        Arena(8, PAGE, "b", BudgetSpec(name="node", num_bytes=8192), folder)
    with pytest.raises(ArenaError, match="needs a name"):
        Arena(8, PAGE, "c", BudgetSpec(num_bytes=8192), folder)
    assert names(folder) == ["parkade-arena-a", "parkade-budget-node"]
    arena.close()


def test_a_budget_can_be_named_with_its_prefix_and_ends_with_its_last_arena(folder: Path) -> None:
    whole_name = BudgetSpec(name="parkade-budget-node", num_bytes=10 * PAGE)
    first, second = Arena(8, PAGE, "a", TEN, folder), Arena(8, PAGE, "b", whole_name, folder)
    first.close()
    assert names(folder) == ["parkade-arena-b", "parkade-budget-node"]
    second.close()
    assert names(folder) == []


@pytest.mark.parametrize("name", [b"a\0b", b"\xff\xfe", b"/etc/hostname", b"../other"])
def test_a_damaged_budget_of_the_dead_hinders_no_start_and_leads_nowhere_else(folder: Path, name: bytes) -> None:
    (folder / "other").write_bytes(b"not ours")
    inner = folder / "shm"
    inner.mkdir()
    damaged = bytearray(64 + 128)
    damaged[64 : 64 + len(name)] = name
    (inner / "parkade-budget-node").write_bytes(damaged)
    arena = Arena(8, PAGE, "a", TEN, inner)
    arena.reserve(slots(8))
    arena.close()
    (inner / "parkade-budget-node").write_bytes(damaged)
    assert sweep_dead_segments(inner) == []
    assert names(inner) == [] and names(folder) == ["other", "shm"]


def test_what_the_dead_have_left_is_free_for_who_needs_it_and_swept(folder: Path, owner: subprocess.Popen[str]) -> None:
    living = Arena(8, PAGE, "living", TEN, folder)
    (folder / "parkade-budget-torn").write_bytes(b"half a head")
    (folder / "other").write_bytes(b"not ours")
    assert sweep_dead_segments(folder) == []
    with pytest.raises(NoHostMemory, match="32768 of 40960 bytes are in use"):
        living.reserve(slots(8))
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    living.reserve(slots(8))
    assert not (folder / "parkade-arena-dead").exists()
    assert sweep_dead_segments(folder) == ["parkade-arena-alone"]
    assert names(folder) == ["other", "parkade-arena-living", "parkade-budget-node"]
    living.close()
    assert names(folder) == ["other"]
