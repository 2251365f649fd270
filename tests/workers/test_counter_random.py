"""The counter-based generator: published values, range, and independence of what was asked before."""

import numpy as np

from workers.counter_random import _GOLDEN, _MASK, _mix, uniform


def test_the_mix_is_splitmix64() -> None:
    """First outputs of the reference generator for seed 1234567 (Vigna's splitmix64.c)."""
    states = [(1234567 + step * _GOLDEN) & _MASK for step in range(1, 4)]
    assert [_mix(state) for state in states] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_a_number_is_a_function_of_seed_and_position() -> None:
    forward = [uniform(7, position) for position in range(100)]
    backward = [uniform(7, position) for position in reversed(range(100))]
    assert forward == backward[::-1]
    assert len(set(forward)) == 100


def test_any_integer_is_a_seed() -> None:
    for seed in (-1, 0, 2**63, 2**64 - 1, 2**70):
        assert 0 <= uniform(seed, 0) < 1
    assert uniform(-1, 3) == uniform(2**64 - 1, 3)


def test_numbers_of_neighbouring_seeds_and_positions_fill_the_unit_interval_evenly() -> None:
    drawn = np.array([uniform(seed, position) for seed in range(100) for position in range(100)])
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    chi_square = float(((counts - 500) ** 2 / 500).sum())
    assert chi_square < 43.8  # 19 degrees of freedom, one in a thousand
    grid = drawn.reshape(100, 100)
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.03
