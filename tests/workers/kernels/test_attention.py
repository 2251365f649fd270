"""Paged attention: near the exact softmax, and each row's bits its own."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from workers.kernels.attention import attend
from workers.kernels.checks import KernelInputError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """Sequences in a pool of shuffled pages; unused slots and pages hold NaN, which nothing may pick up."""

    keys: list[Array]  # one [tokens, Hkv, D] a sequence
    values: list[Array]
    num_heads: int
    page_size: int
    element: str
    seed: int = 0

    @property
    def num_kv_heads(self) -> int:
        return int(self.keys[0].shape[1])

    @property
    def head_dim(self) -> int:
        return int(self.keys[0].shape[2])

    def pool(self) -> tuple[Array, Array]:
        """The pool of two layers, the second in use, and the page tables."""
        size, needed = self.page_size, [-(-len(k) // self.page_size) for k in self.keys]
        free = list(np.random.default_rng(self.seed).permutation(sum(needed) + 3))
        shape = (len(free), 2, 2, self.num_kv_heads, size * self.head_dim)
        pool = np.full(shape, np.nan, np.float32)
        tables = np.full((len(needed), max(needed) + 1), -1, np.int32)
        for s, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            for i in range(needed[s]):
                page = tables[s, i] = free.pop()
                k = np.full((size, *keys.shape[1:]), np.nan, np.float32)
                v = k.copy()
                n = len(keys[i * size : (i + 1) * size])
                k[:n], v[:n] = keys[i * size : i * size + n], values[i * size : i * size + n]
                pool[page, 1, 0] = k.transpose(1, 2, 0).reshape(self.num_kv_heads, -1)
                pool[page, 1, 1] = v.transpose(1, 0, 2).reshape(self.num_kv_heads, -1)
        pool = pool.reshape(shape[0], 2, -1)
        return ((pool.view(np.uint32) >> 16).astype(np.uint16) if self.element == "bf16" else pool), tables

    def attend(self, q: Array, sequences: Array, positions: Array, num_threads: int = 1) -> Array:
        pool, tables = self.pool()
        out = np.full((len(q), self.num_heads * self.head_dim), np.nan, np.float32)
        scale = self.head_dim**-0.5
        rows, at = sequences.astype(np.int32), positions.astype(np.int32)
        attend(q, pool, 1, rows, at, tables, self.num_kv_heads, self.page_size, scale, out, num_threads)
        return out

    def expected(self, q: Array, sequences: Array, positions: Array) -> Array:
        group = self.num_heads // self.num_kv_heads
        out = np.zeros((len(q), self.num_heads, self.head_dim))
        for m, (s, position) in enumerate(zip(sequences, positions, strict=True)):
            for h in range(self.num_heads):
                keys, values = (kv[s][: position + 1, h // group].astype(np.float64) for kv in (self.keys, self.values))
                scores = keys @ q[m, h].astype(np.float64) * self.head_dim**-0.5
                weights = np.exp(scores - scores.max())
                out[m, h] = weights @ values / weights.sum()
        return out.reshape(len(q), -1)


def make_case(  # noqa: PLR0917
    lengths: list[int], num_heads: int, num_kv_heads: int, head_dim: int, page_size: int, element: str
) -> Case:
    rng = np.random.default_rng(3)

    def tokens() -> list[Array]:
        made = [rng.standard_normal((n, num_kv_heads, head_dim)).astype(np.float32) for n in lengths]
        return [(kv.view(np.uint32) & 0xFFFF0000).view(np.float32) for kv in made] if element == "bf16" else made

    return Case(tokens(), tokens(), num_heads, page_size, element)


def queries(case: Case, num_rows: int) -> Array:
    return np.random.default_rng(5).standard_normal((num_rows, case.num_heads, case.head_dim)).astype(np.float32)


SHAPES = [
    (9, 3, 64, 16),
    (4, 1, 16, 32),
    (8, 2, 128, 16),
    (7, 7, 80, 48),
    (5, 1, 96, 16),
    (60, 1, 32, 16),
    (2, 1, 256, 16),
]


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "page_size"), SHAPES)
def test_equals_the_float64_softmax(
    num_heads: int, num_kv_heads: int, head_dim: int, page_size: int, element: str
) -> None:
    case = make_case([150, 1, 64], num_heads, num_kv_heads, head_dim, page_size, element)
    sequences = np.repeat([0, 1, 2], [150, 1, 64])
    positions = np.concatenate([np.arange(n) for n in (150, 1, 64)])
    q = queries(case, len(positions))
    np.testing.assert_allclose(case.attend(q, sequences, positions), case.expected(q, sequences, positions), atol=2e-6)


def test_the_first_position_sees_its_own_value_only() -> None:
    case = make_case([40], 6, 2, 64, 16, "f32")
    out = case.attend(queries(case, 1), np.array([0]), np.array([0]))
    assert np.array_equal(out.reshape(2, 3, 64), np.repeat(case.values[0][0][:, None], 3, axis=1))


def test_far_scores_neither_overflow_nor_vanish() -> None:
    case = make_case([200], 3, 1, 16, 16, "f32")
    case = replace(case, keys=[case.keys[0] * 300])
    q, sequences, positions = queries(case, 200), np.zeros(200, int), np.arange(200)
    np.testing.assert_allclose(case.attend(q, sequences, positions), case.expected(q, sequences, positions), atol=2e-3)


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "page_size"), [(9, 3, 64, 16), (4, 2, 80, 32)])
def test_a_rows_bits_do_not_depend_on_chunks_pages_threads_or_others(
    num_heads: int, num_kv_heads: int, head_dim: int, page_size: int, element: str
) -> None:
    case = make_case([200, 70, 33], num_heads, num_kv_heads, head_dim, page_size, element)
    q = queries(case, 200)
    zeros, positions = np.zeros(200, int), np.arange(200)
    alone = np.concatenate([case.attend(q[m : m + 1], zeros[:1], positions[m : m + 1]) for m in range(200)])
    assert np.array_equal(case.attend(q, zeros, positions), alone)
    for cut in range(1, 200):
        assert np.array_equal(case.attend(q[cut:], zeros[cut:], positions[cut:]), alone[cut:])
    for length in range(1, 65):
        chunk = slice(100, 100 + length)
        assert np.array_equal(case.attend(q[chunk], zeros[chunk], positions[chunk]), alone[chunk])
    for seed in range(1, 5):
        assert np.array_equal(replace(case, seed=seed).attend(q, zeros, positions), alone)
    for threads in (2, 3):
        assert np.array_equal(case.attend(q, zeros, positions, threads), alone)
    mixed_q = np.concatenate([queries(case, 70)[::-1], q[20:150], queries(case, 1)])
    mixed_rows = np.repeat([1, 0, 2], [70, 130, 1])
    mixed_positions = np.concatenate([np.arange(70), positions[20:150], [32]])
    assert np.array_equal(case.attend(mixed_q, mixed_rows, mixed_positions)[70:200], alone[20:150])


def test_not_a_number_in_one_row_stays_in_that_row() -> None:
    case = make_case([40], 3, 1, 16, 16, "f32")
    q, zeros, positions = queries(case, 40), np.zeros(40, int), np.arange(40)
    clean = case.attend(q, zeros, positions)
    q[7] = np.nan
    out = case.attend(q, zeros, positions)
    assert np.isnan(out[7]).all()
    assert np.array_equal(np.delete(out, 7, axis=0), np.delete(clean, 7, axis=0))


def test_no_rows_are_no_work() -> None:
    case = make_case([4], 3, 1, 16, 16, "f32")
    assert case.attend(queries(case, 0), np.zeros(0, int), np.zeros(0, int)).shape == (0, 48)


def refused(**changes: Any) -> str:
    """The message `attend` refuses a good call with one change by."""
    zeros = np.zeros(2, np.int32)
    good: dict[str, Any] = {
        "q": np.ones((2, 4, 16), np.float32),
        "kv_pool": np.ones((3, 1, 2 * 2 * 16 * 16), np.float32),
        "layer": 0,
        "row_tables": zeros,
        "positions": np.array([0, 31], np.int32),
        "page_tables": np.array([[2, 0]], np.int32),
        "num_kv_heads": 2,
        "page_size": 16,
        "scale": 0.25,
        "out": np.empty((2, 64), np.float32),
    }
    attend(*good.values())
    with pytest.raises(KernelInputError) as refusal:
        attend(*(good | changes).values())
    return str(refusal.value)


def test_wrong_calls_are_refused_with_the_bound() -> None:
    assert "out has shape (2, 60); it must be (2, 64)" in refused(out=np.empty((2, 60), np.float32))
    assert "q has dtype float64" in refused(q=np.ones((2, 4, 16)))
    assert "positions has dtype int64; it must be int32" in refused(positions=np.zeros(2, np.int64))
    assert "page_size is 24; it must be a multiple of 16" in refused(page_size=24)
    assert "4 query heads do not divide among 3 KV heads" in refused(num_kv_heads=3)
    assert "layer is 1" in refused(layer=1)
    assert "kv_pool has shape (3, 1, 1000); it must be (3, 1, 1024)" in refused(
        kv_pool=np.ones((3, 1, 1000), np.float32)
    )
    assert "position 32 of 32" in refused(positions=np.array([0, 32], np.int32))
    assert "position -1 of 32" in refused(positions=np.array([-1, 3], np.int32))
    assert "row 1 has table 1 of 1" in refused(row_tables=np.array([0, 1], np.int32))
    assert "positions of a sequence ascend" in refused(positions=np.array([3, 2], np.int32))
    assert "ids must be in [0, 3)" in refused(page_tables=np.array([[2, 3]], np.int32))
    assert "head size is 24; it must be a multiple of 16 up to 256" in refused(
        q=np.ones((2, 4, 24), np.float32), out=np.empty((2, 96), np.float32)
    )
