"""Linear layers: near the exact product, and each row's bits its own."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from workers.kernels.checks import KernelInputError
from workers.kernels.linear import PackedLinear, linear, pack_linear

Array = npt.NDArray[Any]
SHAPES = [(576, 960), (576, 100), (48, 7), (1, 1), (33, 64), (1536, 576)]


def bf16_bits(values: Array) -> Array:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def widened(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def product(x: Array, packed: PackedLinear, num_threads: int = 1) -> Array:
    out = np.full((x.shape[0], packed.out_features), np.nan, np.float32)
    linear(x, packed, out, num_threads)
    return out


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(("num_in", "num_out"), SHAPES)
@pytest.mark.parametrize("encoding", ["bf16", "f32"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_the_float64_product(
    num_in: int, num_out: int, encoding: str, with_bias: bool, rng: np.random.Generator
) -> None:
    weight = rng.standard_normal((num_out, num_in)).astype(np.float32)
    bias = rng.standard_normal(num_out).astype(np.float32) if with_bias else None
    stored = bf16_bits(weight) if encoding == "bf16" else weight
    exact = widened(stored) if encoding == "bf16" else weight
    packed = pack_linear(stored, bias)
    for num_rows in (1, 2, 5, 13, 40):
        x = rng.standard_normal((num_rows, num_in)).astype(np.float32)
        expected = x.astype(np.float64) @ exact.astype(np.float64).T + (0 if bias is None else bias)
        # A sum of K terms in float32 order is off by at most K half-ulps of the sum of absolute values.
        bound = (num_in + 2) * 2.0**-24 * (np.abs(x) @ np.abs(exact).T + (0 if bias is None else np.abs(bias)))
        assert np.all(np.abs(product(x, packed) - expected) <= bound)


def test_sums_run_in_order_with_fused_multiply_add(rng: np.random.Generator) -> None:
    weight, x = (rng.standard_normal((1, 200)).astype(np.float32) for _ in range(2))
    total = np.float64(0)
    for a, b in zip(x[0].astype(np.float64), weight[0].astype(np.float64), strict=True):
        # The product of two floats is exact in longdouble, so this rounds once to float32, as the instruction does.
        total = np.float64(np.float32(np.longdouble(a) * np.longdouble(b) + np.longdouble(total)))
    assert product(x, pack_linear(weight))[0, 0] == np.float32(total)


@pytest.mark.parametrize("encoding", ["bf16", "f32"])
@pytest.mark.parametrize(("num_in", "num_out"), [(576, 960), (65, 100)])
def test_a_rows_bits_do_not_depend_on_the_batch(
    num_in: int, num_out: int, encoding: str, rng: np.random.Generator
) -> None:
    weight = rng.standard_normal((num_out, num_in)).astype(np.float32)
    packed = pack_linear(
        bf16_bits(weight) if encoding == "bf16" else weight, rng.standard_normal(num_out).astype(np.float32)
    )
    x = rng.standard_normal((64, num_in)).astype(np.float32)
    alone = np.concatenate([product(x[m : m + 1], packed) for m in range(64)])
    for num_rows in range(1, 65):
        assert np.array_equal(product(x[:num_rows], packed), alone[:num_rows])
    for cut in range(1, 64):
        assert np.array_equal(product(x[cut:], packed), alone[cut:])
    order = rng.permutation(64)
    assert np.array_equal(product(x[order], packed), alone[order])
    others = rng.standard_normal((64, num_in)).astype(np.float32)
    others[10] = x[10]
    assert np.array_equal(product(others, packed)[10], alone[10])


def test_thread_counts_give_the_same_bits(rng: np.random.Generator) -> None:
    packed = pack_linear(
        rng.standard_normal((1000, 160)).astype(np.float32), rng.standard_normal(1000).astype(np.float32)
    )
    for num_rows in (1, 7, 30):
        x = rng.standard_normal((num_rows, 160)).astype(np.float32)
        alone = product(x, packed)
        assert all(np.array_equal(product(x, packed, threads), alone) for threads in (2, 3, 5))


def test_many_rows_go_through_several_blocks_unchanged(rng: np.random.Generator) -> None:
    packed = pack_linear(rng.standard_normal((40, 4096)).astype(np.float32))
    x = rng.standard_normal((200, 4096)).astype(np.float32)
    alone = np.concatenate([product(x[m : m + 1], packed) for m in range(200)])
    assert np.array_equal(product(x, packed), alone)


def test_no_rows_are_no_work() -> None:
    assert product(np.empty((0, 4), np.float32), pack_linear(np.ones((3, 4), np.float32))).shape == (0, 3)


def test_wrong_arrays_are_refused_with_the_bound() -> None:
    packed = pack_linear(np.ones((3, 4), np.float32))
    x, out = np.ones((2, 4), np.float32), np.empty((2, 3), np.float32)
    with pytest.raises(KernelInputError, match=r"x has shape \(2, 5\); it must be \(2, 4\)"):
        linear(np.ones((2, 5), np.float32), packed, out)
    with pytest.raises(KernelInputError, match=r"out has shape \(1, 3\); it must be \(2, 3\)"):
        linear(x, packed, out[:1])
    with pytest.raises(KernelInputError, match="x has dtype float64; it must be float32"):
        linear(x.astype(np.float64), packed, out)
    with pytest.raises(KernelInputError, match="x has strides"):
        linear(np.ones((4, 2), np.float32).T, packed, out)
    with pytest.raises(ValueError, match=r"bias has shape \(4,\); it must be \(3,\)"):
        pack_linear(np.ones((3, 4), np.float32), np.ones(4, np.float32))
    with pytest.raises(ValueError, match="weight has dtype int8"):
        pack_linear(np.ones((3, 4), np.int8))
