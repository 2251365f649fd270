"""Rotation and the write to pages."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from workers.kernels.checks import KernelInputError
from workers.kernels.rope import rope_write

Array = npt.NDArray[Any]
EMPTY = np.empty(0, np.float32)


def normed(heads: Array, weight: Array) -> Array:
    if not weight.size:
        return heads
    return np.asarray(heads / np.sqrt((heads**2).mean(axis=-1, keepdims=True) + 1e-6) * weight)


def rotated(heads: Array, cos: Array, sin: Array) -> Array:
    """transformers' formula: x cos + rotate_half(x) sin, with angles doubled over both halves."""
    half = heads.shape[-1] // 2
    turned = np.concatenate([-heads[..., half:], heads[..., :half]], axis=-1)
    return np.asarray(heads * np.tile(cos, 2)[:, None] + turned * np.tile(sin, 2)[:, None])


def nearest_bf16(values: Array) -> Array:
    """Round to nearest even in another way than the kernel's: among the two neighbours, by exact distance."""
    low = (values.view(np.uint32) >> 16).astype(np.uint32)
    down, up = ((low + i) << 16 for i in (0, 1))
    below, above = (np.abs(bits.view(np.float32).astype(np.float64) - values) for bits in (down, up))
    take_up = (above < below) | ((above == below) & (low % 2 == 1))
    return np.asarray(low + take_up, np.uint16)


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("with_norms", [False, True])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "page_size"), [(9, 3, 64, 16), (4, 1, 16, 32), (2, 2, 80, 48)]
)
def test_rotates_and_writes_the_slots_of_its_rows(  # noqa: PLR0917  # one a parameter
    num_heads: int, num_kv_heads: int, head_dim: int, page_size: int, with_norms: bool, element: str
) -> None:
    rng = np.random.default_rng(11)
    qkv = rng.standard_normal((5, (num_heads + 2 * num_kv_heads) * head_dim)).astype(np.float32)
    angles = rng.standard_normal((200, head_dim // 2))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    positions, page_ids = np.array([0, 1, 15, 97, 199], np.int32), np.array([4, 4, 4, 0, 2], np.int32)
    q_norm, k_norm = (rng.standard_normal(head_dim).astype(np.float32) if with_norms else EMPTY for _ in range(2))
    old = rng.standard_normal((5, 2, 2 * num_kv_heads * page_size * head_dim)).astype(np.float32)
    pool = old.copy() if element == "f32" else (old.view(np.uint32) >> 16).astype(np.uint16)
    before, q_out = pool.copy(), np.full((5, num_heads, head_dim), np.nan, np.float32)
    rope_write(qkv, cos, sin, positions, page_ids, pool, 1, q_out, num_kv_heads, page_size, q_norm, k_norm, 1e-6)

    q, k, v = np.split(qkv.astype(np.float64).reshape(5, -1, head_dim), [num_heads, num_heads + num_kv_heads], axis=1)
    c, s = cos.astype(np.float64)[positions], sin.astype(np.float64)[positions]
    np.testing.assert_allclose(q_out, rotated(normed(q, q_norm), c, s), atol=3e-6)
    wanted_k = rotated(normed(k, k_norm), c, s)
    split = (5, 2, 2, num_kv_heads, page_size * head_dim)
    pages, untouched = pool.reshape(split), before.reshape(split).copy()
    for m, (page, slot) in enumerate(zip(page_ids, positions % page_size, strict=True)):
        keys = pages[page, 1, 0].reshape(num_kv_heads, head_dim, page_size)[:, :, slot]
        values = pages[page, 1, 1].reshape(num_kv_heads, page_size, head_dim)[:, slot]
        if element == "f32":
            np.testing.assert_allclose(keys, wanted_k[m], atol=3e-6)
            assert np.array_equal(values, v[m].astype(np.float32))
        else:
            np.testing.assert_allclose(
                (keys.astype(np.uint32) << 16).view(np.float32), wanted_k[m], rtol=2**-8, atol=1e-5
            )
            assert np.array_equal(values, nearest_bf16(v[m].astype(np.float32)))
        untouched[page, 1, 0].reshape(num_kv_heads, head_dim, page_size)[:, :, slot] = keys
        untouched[page, 1, 1].reshape(num_kv_heads, page_size, head_dim)[:, slot] = values
    assert np.array_equal(pages, untouched)


def written_value(value: float) -> int:
    qkv = np.zeros((1, 3 * 16), np.float32)
    qkv[0, 32] = value
    pool, q_out = np.zeros((1, 1, 2 * 16 * 16), np.uint16), np.empty((1, 1, 16), np.float32)
    angles, zero = np.zeros((1, 8), np.float32), np.zeros(1, np.int32)
    rope_write(qkv, angles, angles, zero, zero, pool, 0, q_out, 1, 16, EMPTY, EMPTY, 1e-6)
    return int(pool[0, 0, 256])


def test_bf16_is_rounded_to_nearest_with_ties_to_even() -> None:
    assert written_value(1.0) == 0x3F80
    assert written_value(1.0 + 2**-8) == 0x3F80  # half way between 0x3F80 and 0x3F81
    assert written_value(1.0 + 3 * 2**-8) == 0x3F82  # half way between 0x3F81 and 0x3F82
    assert written_value(1.0 + 2**-8 + 2**-20) == 0x3F81
    assert written_value(-1.0 - 3 * 2**-8) == 0xBF82
    assert written_value(3.4e38) == 0x7F80  # rounds to infinity
    assert written_value(float("inf")) == 0x7F80
    assert written_value(float("nan")) & 0x7FFF == 0x7FC0


def test_a_rows_bits_do_not_depend_on_the_batch() -> None:
    rng = np.random.default_rng(13)
    qkv = rng.standard_normal((40, 5 * 64)).astype(np.float32)
    cos, sin = (rng.standard_normal((50, 32)).astype(np.float32) for _ in range(2))
    positions, norm = np.arange(40, dtype=np.int32), rng.standard_normal(64).astype(np.float32)
    page_ids = (positions // 16).astype(np.int32)

    def write(rows: slice, pool: Array) -> Array:
        q_out = np.empty((len(positions[rows]), 3, 64), np.float32)
        rope_write(qkv[rows], cos, sin, positions[rows], page_ids[rows], pool, 0, q_out, 1, 16, norm, norm, 1e-6)
        return q_out

    whole_pool, alone_pool = (np.zeros((3, 1, 2 * 16 * 64), np.float32) for _ in range(2))
    whole = write(slice(0, 40), whole_pool)
    alone = np.concatenate([write(slice(m, m + 1), alone_pool) for m in range(40)])
    assert np.array_equal(whole, alone)
    assert np.array_equal(whole_pool, alone_pool)


def test_wrong_calls_are_refused_with_the_bound_and_write_nothing() -> None:
    qkv, angles = np.ones((1, 48), np.float32), np.zeros((4, 8), np.float32)
    pool, q_out = np.zeros((2, 1, 512), np.float32), np.empty((1, 1, 16), np.float32)
    at, page = np.array([3], np.int32), np.array([1], np.int32)
    with pytest.raises(KernelInputError, match="position 4 of 4"):
        rope_write(qkv, angles, angles, at + 1, page, pool, 0, q_out, 1, 16, EMPTY, EMPTY, 1e-6)
    with pytest.raises(KernelInputError, match="page 2 of 2"):
        rope_write(qkv, angles, angles, at, page + 1, pool, 0, q_out, 1, 16, EMPTY, EMPTY, 1e-6)
    with pytest.raises(KernelInputError, match=r"qkv has shape \(1, 47\); it must be \(1, 48\)"):
        rope_write(qkv[:, :47].copy(), angles, angles, at, page, pool, 0, q_out, 1, 16, EMPTY, EMPTY, 1e-6)
    with pytest.raises(KernelInputError, match=r"k_norm has shape \(8,\); it must be \(16,\)"):
        rope_write(qkv, angles, angles, at, page, pool, 0, q_out, 1, 16, EMPTY, np.ones(8, np.float32), 1e-6)
    assert not pool.any()
