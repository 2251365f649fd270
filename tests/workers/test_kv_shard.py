"""Pages of a pool, wherever it lies, are handed out in runs and written back in runs."""

import numpy as np
import pytest
import torch

from workers import kv_shard
from workers.kv_shard import Bytes, DeviceKvShard, HostKvShard, Int64, KvShard

NUM_PAGES, PAGE_VALUES, PAGE_BYTES = 12, 120, 480


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Runs of two pages."""
    monkeypatch.setattr(kv_shard, "_HOST_RUN_BYTES", 2 * PAGE_BYTES)
    monkeypatch.setattr(kv_shard, "_DEVICE_RUN_BYTES", 2 * PAGE_BYTES)
    return torch.arange(NUM_PAGES * PAGE_VALUES, dtype=torch.float32).reshape(NUM_PAGES, 3, 40)


def fetched(shard: KvShard, page_ids: Int64) -> tuple[Bytes, list[int]]:
    """The pages, and how many came in each run."""
    runs = [rows[ids].copy() for rows, ids in shard.pages_out(page_ids, shard.mark())]
    return np.concatenate(runs), [len(run) for run in runs]


def put(shard: KvShard, page_ids: Int64, pages: Bytes) -> None:
    first = 0
    for rows, ids in shard.pages_in(page_ids, shard.mark()):
        rows[ids] = pages[first : first + len(ids)]
        first += len(ids)
    assert first == len(page_ids)


def check_round_trip(shard: KvShard, pool: torch.Tensor) -> None:
    before = pool.cpu().clone()
    out, home = np.array([9, 3, 0, 7, 1]), np.array([2, 11, 4, 8, 5])
    pages, runs = fetched(shard, out)
    assert (shard.page_bytes, shard.num_pages, runs) == (PAGE_BYTES, NUM_PAGES, [2, 2, 1])
    np.testing.assert_array_equal(pages.view(np.float32).reshape(5, 3, 40), before[out].numpy())
    put(shard, home, pages)
    before[home] = before[out]
    assert torch.equal(pool.cpu(), before)


def test_a_pool_on_the_host_is_read_and_written_where_it_lies(pool: torch.Tensor) -> None:
    shard = HostKvShard(pool.numpy())
    rows, ids = next(shard.pages_out(np.array([4, 2]), shard.mark()))
    assert (rows.ctypes.data, ids.tolist()) == (pool.data_ptr(), [4, 2])
    check_round_trip(shard, pool)


def test_a_pool_on_a_device_goes_through_two_buffers(pool: torch.Tensor) -> None:
    check_round_trip(DeviceKvShard(pool), pool)


def test_a_device_page_is_as_it_was_when_its_writing_is_broken_off(pool: torch.Tensor) -> None:
    shard, before = DeviceKvShard(pool), pool.clone()
    runs = shard.pages_in(np.array([1, 2, 3, 4]), shard.mark())
    for _ in range(2):
        rows, ids = next(runs)
        rows[ids] = 7
    runs.close()  # the second run never crosses
    assert pool.view(torch.uint8)[1:3].eq(7).all()
    assert torch.equal(pool[3:], before[3:])


def test_nothing_crosses_to_a_device_any_more_when_its_writing_is_broken_off(
    pool: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing: set[object] = set()

    def begin(_stream: object) -> object:
        event = object()
        crossing.add(event)
        return event

    monkeypatch.setattr(kv_shard, "_event_of", begin)
    monkeypatch.setattr(kv_shard, "_synchronize", crossing.discard)
    shard = DeviceKvShard(pool)
    runs = shard.pages_in(np.arange(8), shard.mark())
    for _ in range(3):
        next(runs)
    assert len(crossing) == 1, "the first has left its buffer, which is asked for again; the second may be under way"
    runs.close()
    assert crossing == set()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_copies_on_a_stream_of_their_own_see_what_was_computed_before_the_mark(pool: torch.Tensor) -> None:
    on_device = pool.cuda()
    shard = DeviceKvShard(on_device)
    for value in range(20):
        busy = torch.randn(2048, 2048, device="cuda")
        for _ in range(20):
            busy = busy @ busy / 50
        on_device.fill_(value)
        mark = shard.mark()
        runs = [rows[ids].copy() for rows, ids in shard.pages_out(np.arange(NUM_PAGES), mark)]
        assert (np.concatenate(runs).view(np.float32) == value).all()
    on_device.copy_(pool)
    check_round_trip(shard, on_device)
