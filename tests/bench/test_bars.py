"""The bars, on both sides of each bound."""

import pytest

from bench.bars import Bar, all_held, memory_bar, overhead_bar, peer_bars, ready_bar
from bench.report import exit_code


@pytest.mark.parametrize(("num_streams", "bound"), [(1, 1.3), (4, 2.0), (8, 1.7), (16, 1.7)], ids=["1", "4", "8", "16"])
def test_the_decode_bar_holds_at_its_bound_and_not_below(num_streams: int, bound: float) -> None:
    (at,) = peer_bars({num_streams: bound}, None)
    (below,) = peer_bars({num_streams: bound - 0.01}, None)
    assert (at.held, below.held) == (True, False)


def test_streams_without_a_bar_give_none_and_prefill_gives_one() -> None:
    assert [bar.value for bar in peer_bars({2: 0.1}, 1.3)] == [1.3]
    assert all_held(peer_bars({2: 0.1}, 1.3))
    assert not all_held(peer_bars({}, 1.29))


def test_http_must_reach_nine_tenths_of_the_engine() -> None:
    assert overhead_bar(0.9, 8).held
    assert not overhead_bar(0.89, 8).held


def test_times_and_sizes_are_bounded_from_above() -> None:
    assert ready_bar(30.0).held
    assert not ready_bar(30.1).held
    assert memory_bar("larger rank", resident_mib=900.0, accounted_mib=300.0).held
    assert not memory_bar("larger rank", resident_mib=901.0, accounted_mib=300.0).held


def test_a_bar_says_value_and_bound() -> None:
    assert str(overhead_bar(0.5, 8)) == "HTTP over engine-only, 8 streams: 0.50, at least 0.90 asked"
    assert str(ready_bar(31.0)) == "warm time to ready, s: 31.0, at most 30.0 asked"


def test_only_check_turns_a_missed_bar_into_a_failure() -> None:
    missed = [Bar(name="x", value=1.0, bound=2.0)]
    assert exit_code(missed, check=True) == 1
    assert exit_code(missed, check=False) == 0
    assert exit_code([Bar(name="x", value=2.0, bound=2.0)], check=True) == 0
