"""The arena's memory follows what is in use; parked pages are given back when, and only when, nobody may want them."""

import numpy as np
import psutil
import pytest

from workers.arena import Arena
from workers.errors import DoesNotFit, RankDisagreement
from workers.kv_shard import HostKvShard
from workers.parked_pages import ParkedPages

MIB = 1 << 20


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def test_memory_is_touched_when_written_and_given_back_when_released() -> None:
    before = resident_bytes()
    arena = Arena(256, MIB)
    assert resident_bytes() - before < 8 * MIB
    arena.host[:128] = 7
    assert resident_bytes() - before > 120 * MIB
    arena.release(range(128))
    assert resident_bytes() - before < 8 * MIB
    arena.close()


def test_release_leaves_the_neighbours_alone() -> None:
    arena = Arena(6, 5000)  # not a multiple of the system's page
    assert arena.slot_bytes == 8192
    for slot in range(6):
        arena.host[slot] = slot + 1
    arena.release([1, 2, 4])
    assert arena.host[:, 0].tolist() == [1, 0, 0, 4, 0, 6]
    assert arena.host[:, -1].tolist() == [1, 0, 0, 4, 0, 6]


def test_an_arena_beyond_the_address_space_is_refused_with_its_size() -> None:
    with pytest.raises(DoesNotFit, match="an arena of 1099511627776 pages"):
        Arena(1 << 40, 1 << 20)


def test_an_empty_arena_is_legal() -> None:
    arena = Arena(0, 4096)
    assert arena.host.shape == (0, 4096)
    arena.close()


def test_pages_come_back_as_they_went_into_other_pages() -> None:
    pool = np.random.default_rng(0).normal(size=(12, 3, 40)).astype(np.float32)
    before = pool.copy()
    shard, arena = HostKvShard(pool), Arena(8, 3 * 40 * 4)
    assert shard.page_bytes == 480
    shard.copy_out(np.array([3, 9, 0]), arena.host, np.array([7, 2, 5]))
    shard.copy_in(arena.host, np.array([7, 2, 5]), np.array([10, 11, 4]))
    np.testing.assert_array_equal(pool[[10, 11, 4]], before[[3, 9, 0]])
    np.testing.assert_array_equal(pool[:4], before[:4])


def parked(seq_id: int, slots: list[int], step: int = 1) -> tuple[Arena, ParkedPages]:
    arena = Arena(8, 16)
    arena.host[:] = 1
    pages = ParkedPages(arena)
    pages.hold(seq_id, slots, step)
    return arena, pages


def test_slots_survive_a_restore_until_the_sequence_computes_in_a_later_step() -> None:
    """Another rank may have failed the same restore; it can be ordered again."""
    arena, pages = parked(5, [0, 1])
    pages.restored(5, 3)
    pages.check(5, [0, 1])
    pages.computes(5, 3)
    assert (pages.num_held, arena.host[:, 0].tolist()) == (2, [1] * 8)
    pages.computes(5, 4)
    assert (pages.num_held, arena.host[:, 0].tolist()) == (0, [0, 0, 1, 1, 1, 1, 1, 1])


def test_a_park_undone_elsewhere_is_given_back_when_the_sequence_runs_on() -> None:
    arena, pages = parked(5, [3])
    pages.computes(5, 2)
    assert arena.host[3, 0] == 0


def test_a_slot_given_to_another_sequence_is_not_taken_from_it() -> None:
    arena, pages = parked(5, [0, 1])
    pages.restored(5, 3)
    pages.hold(6, [1], 4)
    pages.computes(5, 4)
    assert arena.host[:3, 0].tolist() == [0, 1, 1]
    pages.check(6, [1])
    pages.release(6)
    assert (pages.num_held, arena.host[1, 0]) == (0, 0)


def test_a_restore_from_slots_of_another_is_refused() -> None:
    _, pages = parked(5, [0, 1])
    with pytest.raises(RankDisagreement, match=r"restore of 6 reads arena slots \[1\]"):
        pages.check(6, [1])
