"""The largest logit of each row."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from workers.kernels.checks import KernelInputError
from workers.kernels.sampling import argmax_rows


def argmax(logits: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    values, indices = np.full(len(logits), np.nan, np.float32), np.full(len(logits), -1, np.int64)
    argmax_rows(logits, values, indices)
    return values, indices


@pytest.mark.parametrize("width", [1, 15, 16, 17, 1000])
def test_finds_numpys_argmax(width: int) -> None:
    logits = np.random.default_rng(width).standard_normal((50, width)).astype(np.float32)
    values, indices = argmax(logits)
    assert np.array_equal(indices, logits.argmax(axis=1))
    assert np.array_equal(values, logits.max(axis=1))


def test_the_first_of_equals_wins() -> None:
    logits = np.zeros((4, 40), np.float32)
    logits[1, [7, 23, 39]] = 5
    logits[2, [16, 0]] = 1
    logits[3] = -np.inf
    assert argmax(logits)[1].tolist() == [0, 7, 0, 0]


def test_not_a_number_never_wins() -> None:
    logits = np.full((2, 20), np.nan, np.float32)
    logits[0, 18] = -3
    values, indices = argmax(logits)
    assert indices.tolist() == [18, 0]
    assert values.tolist() == [-3, -np.inf]


def test_wrong_arrays_are_refused_with_the_bound() -> None:
    logits = np.ones((2, 3), np.float32)
    with pytest.raises(KernelInputError, match="indices has dtype int32; it must be int64"):
        argmax_rows(logits, np.empty(2, np.float32), np.empty(2, np.int32))
    with pytest.raises(KernelInputError, match="at least one column"):
        argmax_rows(logits[:, :0], np.empty(2, np.float32), np.empty(2, np.int64))
