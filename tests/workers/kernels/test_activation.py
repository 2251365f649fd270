"""SiLU times up, and the residual sum."""

import numpy as np
import pytest

from workers.kernels.activation import add_inplace, silu_mul
from workers.kernels.checks import KernelInputError


@pytest.mark.parametrize("width", [1, 16, 17, 1536])
def test_silu_mul_equals_float64(width: int) -> None:
    rng = np.random.default_rng(width)
    gate_up = (rng.standard_normal((4, 2 * width)) * 20).astype(np.float32)
    out = np.full((4, width), np.nan, np.float32)
    silu_mul(gate_up, out)
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=1)
    np.testing.assert_allclose(out, gate / (1 + np.exp(-gate)) * up, rtol=6e-7, atol=1e-35)


def test_silu_mul_is_exact_at_the_ends() -> None:
    gate = np.array([0.0, 100.0, -200.0, np.inf, np.nan], np.float32)
    out = np.empty((1, 5), np.float32)
    silu_mul(np.concatenate([gate, np.ones(5, np.float32)])[None], out)
    assert np.array_equal(out[0], np.array([0.0, 100.0, 0.0, np.inf, np.nan], np.float32), equal_nan=True)


def test_exponential_is_within_a_unit_or_two_in_the_last_place() -> None:
    gate = -np.linspace(0, 87, 100_001, dtype=np.float32)
    out = np.empty((1, gate.size), np.float32)
    silu_mul(np.concatenate([gate, np.ones_like(gate)])[None], out)
    exact = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64)))
    assert np.all(np.abs(out[0] - exact) <= 4e-7 * np.abs(exact))


def test_rows_do_not_depend_on_the_batch() -> None:
    gate_up = np.random.default_rng(1).standard_normal((33, 2 * 77)).astype(np.float32)
    whole, alone = np.empty((33, 77), np.float32), np.empty((33, 77), np.float32)
    silu_mul(gate_up, whole)
    for m in range(33):
        silu_mul(gate_up[m : m + 1], alone[m : m + 1])
    assert np.array_equal(whole, alone)


def test_add_inplace_is_numpys_sum() -> None:
    x, y = (np.random.default_rng(i).standard_normal((3, 77)).astype(np.float32) for i in range(2))
    expected = x + y
    add_inplace(x, y)
    assert np.array_equal(x, expected)


def test_wrong_arrays_are_refused_with_the_bound() -> None:
    with pytest.raises(KernelInputError, match=r"gate_up has shape \(2, 7\); it must be \(2, 8\)"):
        silu_mul(np.ones((2, 7), np.float32), np.empty((2, 4), np.float32))
    with pytest.raises(KernelInputError, match=r"y has shape \(1, 4\); it must be \(2, 4\)"):
        add_inplace(np.ones((2, 4), np.float32), np.ones((1, 4), np.float32))
