"""Bandwidth: pages really go out and come back, each size gets its samples, and the bar is the worst of them."""

import numpy as np
import pytest

from bench.copies.bandwidth import COLD_PARK, PARK, RESTORE, BandwidthSamples, measure_bandwidth, rank_copies
from bench.copies.command import CopiesBench, make_report
from bench.copies.gaps import GapSamples
from bench.streams import StreamError
from workers.model.memory import RankBytes


def test_what_was_parked_comes_back_to_other_pages() -> None:
    with rank_copies(20, 8192) as copies:
        before = copies._pool.copy()
        pages, slots, back = (np.array(ids) for ids in ([3, 9, 4], [7, 0, 19], [1, 2, 5]))
        assert copies.park(pages, slots) > 0
        assert copies.restore(slots, back) > 0
        assert np.array_equal(copies._pool[back], before[pages])


def test_a_copy_that_fails_is_an_error() -> None:
    with rank_copies(20, 8192) as copies, pytest.raises(StreamError, match=r"corrupt.*holds no page"):
        copies.restore(np.array([3]), np.array([1]))


def test_every_rank_size_and_kind_is_measured_beside_a_memcpy() -> None:
    ranks = (RankBytes(rank=0, weights=0, page=8192), RankBytes(rank=1, weights=0, page=4096))
    samples = measure_bandwidth(ranks, (16, 100), page_size=16, rounds=2)
    keys = {(rank, tokens, kind) for rank in (0, 1) for tokens in (16, 100) for kind in (PARK, RESTORE, COLD_PARK)}
    assert set(samples.copy_s) == set(samples.memcpy_s) == keys
    for key in keys:
        assert len(samples.copy_s[key]) == len(samples.memcpy_s[key]) == (1 if key[2] == COLD_PARK else 2)


def bandwidth(park_s: float, restore_s: float) -> BandwidthSamples:
    samples = BandwidthSamples()
    for kind, seconds in ((PARK, park_s), (RESTORE, restore_s), (COLD_PARK, 99.0)):
        samples.add((0, 100, kind), seconds, 0.7)
        samples.add((0, 500, kind), 0.7, 0.7)
    return samples


@pytest.mark.parametrize(
    ("park_s", "restore_s", "held"), [(1.0, 1.0, [True, True]), (1.01, 1.0, [False, True]), (0.5, 2.0, [True, False])]
)
def test_the_worst_warm_size_holds_or_misses_the_bar(park_s: float, restore_s: float, held: list[bool]) -> None:
    bench = CopiesBench(model="m", model_dir=__file__)  # type: ignore[arg-type]
    report = make_report(bench, bandwidth(park_s, restore_s), None)
    assert [bar.held for bar in report.bars] == held


@pytest.mark.parametrize(("gap_s", "held"), [(0.03, True), (0.031, False)])
def test_gaps_may_be_half_as_long_again(gap_s: float, held: bool) -> None:
    samples = GapSamples(with_copies=[gap_s] * 3, without=[0.02] * 3, num_gaps=[9, 9, 9], num_copies=4)
    bench = CopiesBench(model="m", model_dir=__file__)  # type: ignore[arg-type]
    assert [bar.held for bar in make_report(bench, None, samples).bars] == [held]
