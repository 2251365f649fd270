"""RMS norm."""

import numpy as np
import pytest

from workers.kernels.checks import KernelInputError
from workers.kernels.norm import rms_norm


@pytest.mark.parametrize("width", [1, 15, 16, 17, 576, 2048])
def test_equals_the_float64_norm(width: int) -> None:
    rng = np.random.default_rng(width)
    x, weight = rng.standard_normal((5, width)).astype(np.float32), rng.standard_normal(width).astype(np.float32)
    out = np.full_like(x, np.nan)
    rms_norm(x, weight, 1e-5, out)
    exact = x.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(out, expected, rtol=5e-7)


def test_a_rows_bits_do_not_depend_on_the_batch() -> None:
    rng = np.random.default_rng(1)
    x, weight = rng.standard_normal((64, 577)).astype(np.float32), rng.standard_normal(577).astype(np.float32)
    alone = np.empty_like(x)
    for m in range(64):
        rms_norm(x[m : m + 1], weight, 1e-6, alone[m : m + 1])
    order = rng.permutation(64)
    out = np.empty_like(x)
    rms_norm(x[order], weight, 1e-6, out)
    assert np.array_equal(out, alone[order])


def test_may_write_over_its_input() -> None:
    x = np.random.default_rng(2).standard_normal((3, 40)).astype(np.float32)
    weight, out = np.ones(40, np.float32), np.empty_like(x)
    rms_norm(x, weight, 1e-6, out)
    rms_norm(x, weight, 1e-6, x)
    assert np.array_equal(x, out)


def test_wrong_arrays_are_refused_with_the_bound() -> None:
    x, out = np.ones((2, 4), np.float32), np.empty((2, 4), np.float32)
    with pytest.raises(KernelInputError, match=r"weight has shape \(5,\); it must be \(4,\)"):
        rms_norm(x, np.ones(5, np.float32), 1e-6, out)
    with pytest.raises(KernelInputError, match=r"out has shape \(2, 3\); it must be \(2, 4\)"):
        rms_norm(x, np.ones(4, np.float32), 1e-6, np.empty((2, 3), np.float32))
