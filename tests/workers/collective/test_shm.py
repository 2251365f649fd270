"""The shared-memory collective: exact sums in rank order, bounded waits, and nothing left behind."""

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.collective.groups import SHM, RankProcess, fresh_path, in_thread, on_all_ranks, shm_group
from workers.collective import CollectiveAborted, CollectiveError, CollectiveTimeout
from workers.collective.shm import ShmCollective
from workers.collective.shm_segment import SegmentShape, attach_segment, create_segment, sweep_stale_segments

SLOT_FLOATS = 4096 // 4


def inputs(world_size: int, *shape: int) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    # Magnitudes far apart: any other order of the sum has other bits.
    return [
        (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 6, shape)).astype(np.float32) for _ in range(world_size)
    ]


def rank_order_sum(arrays: list[np.ndarray]) -> np.ndarray:
    total = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    return total


@pytest.mark.parametrize("world_size", [2, 3, 5])
@pytest.mark.parametrize("shape", [(1, 576), (1,), (3, 7), (1, SLOT_FLOATS), (5, SLOT_FLOATS + 1), (64, 577)])
def test_sums_have_the_bits_of_the_sum_in_rank_order_on_every_rank(world_size: int, shape: tuple[int, ...]) -> None:
    arrays = inputs(world_size, *shape)
    expected = rank_order_sum(arrays)
    with shm_group(world_size) as ends:
        for _ in range(3):
            mine = [array.copy() for array in arrays]
            on_all_ranks(world_size, lambda rank: ends[rank].all_reduce(mine[rank]))  # noqa: B023
            for got in mine:
                np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("shape", [(1, 3), (9, 4099)])
def test_gathers_bring_every_ranks_bytes_to_all(dtype: Any, shape: tuple[int, int]) -> None:
    arrays = [np.random.default_rng(rank).integers(0, 200, shape).astype(dtype) for rank in range(3)]
    with shm_group(3) as ends:

        def gather(rank: int) -> np.ndarray:
            out = np.empty((3, *shape), dtype=dtype)
            ends[rank].all_gather(arrays[rank], out)
            return out

        for got in on_all_ranks(3, gather):
            np.testing.assert_array_equal(got, np.stack(arrays))


def test_an_empty_array_is_summed_without_an_exchange() -> None:
    with shm_group(2) as ends:
        empty = np.empty((0, 8), np.float32)
        ends[0].all_reduce(empty)  # the other rank is not needed


def test_every_call_is_counted_once_however_many_parts_it_has() -> None:
    with shm_group(2) as ends:
        arrays = inputs(2, 10, SLOT_FLOATS)
        on_all_ranks(2, lambda rank: ends[rank].all_reduce(arrays[rank]))
        on_all_ranks(2, lambda rank: ends[rank].all_gather(arrays[rank], np.empty((2, *arrays[0].shape), np.float32)))
        assert [end.num_calls for end in ends] == [2, 2]


def test_the_sequence_counter_may_wrap() -> None:
    with shm_group(2) as ends:
        for end in ends:
            end._seq = 0xFFFFFFFE
        on_all_ranks(2, lambda rank: ends[rank]._segment.memory.seek(0))
        for rank in range(2):  # both flags stand where the counters stand
            ends[0]._segment.memory[rank * 64 : rank * 64 + 4] = (0xFFFFFFFE).to_bytes(4, "little")
        arrays = inputs(2, 6, SLOT_FLOATS)
        expected = rank_order_sum(arrays)
        on_all_ranks(2, lambda rank: ends[rank].all_reduce(arrays[rank]))
        np.testing.assert_array_equal(arrays[0], expected)
        np.testing.assert_array_equal(arrays[1], expected)


def test_a_rank_that_stays_away_is_a_timeout_that_names_it_and_ends_the_others() -> None:
    with shm_group(3, timeout_s=0.2) as ends:
        x = np.ones(4, np.float32)
        begun = time.monotonic()
        with pytest.raises(CollectiveTimeout, match=r"rank 0 waited 0\.2 s for rank 1"):
            ends[0].all_reduce(x)
        assert 0.2 <= time.monotonic() - begun < 5
        with pytest.raises(CollectiveAborted, match="rank 0"):
            ends[0].all_reduce(x)
        with pytest.raises(CollectiveAborted):
            ends[2].all_reduce(x)


def test_abort_from_another_thread_ends_a_wait_at_once() -> None:
    with shm_group(2, timeout_s=60) as ends:
        seen: list[Exception] = []

        def wait() -> None:
            try:
                ends[0].all_reduce(np.ones(4, np.float32))
            except CollectiveAborted as error:
                seen.append(error)

        thread = in_thread(wait)
        ends[1].abort()
        thread.join(10)
        assert not thread.is_alive()
        assert len(seen) == 1


def test_wrong_arrays_are_refused_before_anything_is_exchanged() -> None:
    with shm_group(2) as ends:
        with pytest.raises(ValueError, match="float64"):
            ends[0].all_reduce(np.ones(4))
        with pytest.raises(ValueError, match="contiguous"):
            ends[0].all_reduce(np.ones((4, 4), np.float32).T)
        with pytest.raises(ValueError, match=r"\(2, 4\)"):
            ends[0].all_gather(np.ones(4, np.float32), np.empty((3, 4), np.float32))
        assert ends[0].num_calls == 0


def test_a_second_group_on_the_same_path_is_refused() -> None:
    path = Path(fresh_path())
    segment = create_segment(path, SegmentShape(2, 4096))
    with pytest.raises(FileExistsError):
        create_segment(path, SegmentShape(2, 4096))
    segment.unlink()
    assert not path.exists()


def test_a_rank_with_another_world_size_is_refused() -> None:
    path = Path(fresh_path())
    segment = create_segment(path, SegmentShape(2, 4096))
    with pytest.raises(ValueError, match="world sizes differ"):
        attach_segment(path, SegmentShape(3, 4096), 1, 1.0)
    segment.unlink()


def test_the_file_is_private_and_gone_once_all_have_mapped_it() -> None:
    path = Path(fresh_path())
    segment = create_segment(path, SegmentShape(2, 4096))
    assert path.stat().st_mode & 0o777 == 0o600
    segment.unlink()
    before = set(SHM.iterdir())
    with shm_group(2):
        assert set(SHM.iterdir()) <= before


def test_rank_0_alone_times_out_and_leaves_no_file() -> None:
    path = fresh_path()
    with pytest.raises(CollectiveTimeout, match="rank 1"):
        ShmCollective(path, 0, 2, timeout_s=0.1)
    assert not Path(path).exists()


def test_a_rank_without_rank_0_times_out() -> None:
    with pytest.raises(CollectiveTimeout, match="rank 0 to make"):
        ShmCollective(fresh_path(), 1, 2, timeout_s=0.1)


def reduce_forever(rank: int, pipe: Connection, path: str, world_size: int) -> None:
    collective = ShmCollective(path, rank, world_size, timeout_s=1.0, open_timeout_s=120.0)
    x = inputs(world_size, 3, 1000)[rank]
    collective.all_reduce(x)
    pipe.send(x.tobytes())
    try:
        while True:
            collective.all_reduce(x)
            x.fill(1)
    except CollectiveError:
        return


def test_real_processes_agree_and_survive_the_killing_of_one_with_nothing_left_in_shared_memory() -> None:
    path = fresh_path()
    ranks = [RankProcess(reduce_forever, rank, path, 3) for rank in range(3)]
    try:
        expected = rank_order_sum(inputs(3, 3, 1000)).tobytes()
        assert [rank.result() for rank in ranks] == [expected] * 3
        ranks[2].kill()
        # One of the two waits its second out; it then ends the other.
        ends = [rank.process for rank in ranks[:2]]
        for process in ends:
            process.join(20)
        assert all(not process.is_alive() for process in ends)
        assert not Path(path).exists()
    finally:
        for rank in ranks:
            rank.end()


def create_and_hang(rank: int, pipe: Connection, path: str) -> None:
    segment = create_segment(Path(path), SegmentShape(2, 4096))
    pipe.send(os.getpid())
    pipe.recv()
    segment.unlink()


def test_a_file_whose_rank_0_was_killed_before_it_was_unlinked_is_swept_and_a_live_one_is_not() -> None:
    path = fresh_path()
    owner = RankProcess(create_and_hang, 0, path)
    try:
        owner.result()
        sweep_stale_segments(SHM, grace_s=0.0)
        assert Path(path).exists()
        owner.kill()
        assert Path(path).exists()
        sweep_stale_segments(SHM, grace_s=3600.0)
        assert Path(path).exists()
        sweep_stale_segments(SHM, grace_s=0.0)
        assert not Path(path).exists()
    finally:
        owner.end()
