"""Medians, spreads and ratios of pairs."""

import pytest

from bench.spread import paired_ratio, spread


def test_a_spread_is_the_median_between_the_extremes() -> None:
    value = spread([3.0, 1.0, 2.0])
    assert (value.median, value.low, value.high, value.samples) == (2.0, 1.0, 3.0, (3.0, 1.0, 2.0))


def test_a_ratio_pairs_rounds_and_not_medians() -> None:
    # The machine halved its speed in the second round: both arms did, and the ratio does not see it.
    value = paired_ratio([100.0, 50.0, 120.0], [50.0, 25.0, 40.0])
    assert value.samples == (2.0, 2.0, 3.0)
    assert value.median == 2.0


def test_a_round_without_its_partner_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0, 2.0], [1.0])


def test_nothing_has_no_spread() -> None:
    with pytest.raises(ValueError, match="at least one"):
        spread([])


def test_a_spread_prints_three_digits() -> None:
    assert str(spread([1.0, 23.456, 456.7])) == "23.5 (1.00 - 457)"
