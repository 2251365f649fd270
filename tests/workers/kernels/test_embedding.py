"""Embedding rows of a vocabulary shard."""

import numpy as np
import pytest

from workers.kernels.checks import KernelInputError
from workers.kernels.embedding import embed


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("width", [5, 16, 40])
def test_takes_own_rows_and_zeros_for_those_of_other_shards(element: str, width: int) -> None:
    values = np.random.default_rng(width).standard_normal((10, width)).astype(np.float32)
    table = values if element == "f32" else (values.view(np.uint32) >> 16).astype(np.uint16)
    wide = values if element == "f32" else (table.astype(np.uint32) << 16).view(np.float32)
    tokens, out = np.array([100, 109, 99, 110, 0, 104, -1], np.int32), np.full((7, width), np.nan, np.float32)
    embed(tokens, table, 100, out)
    expected = np.zeros((7, width), np.float32)
    expected[[0, 1, 5]] = wide[[0, 9, 4]]
    assert np.array_equal(out, expected)


def test_takes_a_read_only_table() -> None:
    table, out = np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)
    table.flags.writeable = False
    embed(np.array([1], np.int32), table, 0, out)
    assert np.array_equal(out, np.ones((1, 3), np.float32))


def test_wrong_arrays_are_refused_with_the_bound() -> None:
    tokens, table = np.zeros(2, np.int32), np.ones((4, 3), np.float32)
    with pytest.raises(KernelInputError, match=r"table has shape \(4, 3\); it must be \(4, 5\)"):
        embed(tokens, table, 0, np.empty((2, 5), np.float32))
    with pytest.raises(KernelInputError, match="table has dtype float64"):
        embed(tokens, table.astype(np.float64), 0, np.empty((2, 3), np.float32))
    with pytest.raises(KernelInputError, match="tokens has dtype int64; it must be int32"):
        embed(tokens.astype(np.int64), table, 0, np.empty((2, 3), np.float32))
