"""Pages from one array to another."""

import numpy as np
import pytest

from workers.kernels.checks import KernelInputError
from workers.kernels.copy import copy_pages


def test_copies_whole_pages_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    pool = rng.standard_normal((6, 2, 50)).astype(np.float32)
    arena = rng.integers(0, 255, (4, 400), np.uint8)
    expected = arena.copy()
    expected[[3, 0]] = pool[[5, 2]].view(np.uint8).reshape(2, 400)
    copy_pages(pool, np.array([5, 2]), arena, np.array([3, 0]))
    assert np.array_equal(arena, expected)


def test_what_went_out_comes_back() -> None:
    pool = np.random.default_rng(2).integers(0, 65535, (6, 3, 64), np.uint16)
    arena, before = np.zeros((6, 3, 64), np.uint16), pool.copy()
    out, home = np.array([1, 4, 5]), np.array([0, 2, 3])
    copy_pages(pool, out, arena, home)
    pool[out] = 0
    copy_pages(arena, home, pool, out)
    assert np.array_equal(pool, before)


def test_a_page_out_of_bounds_is_refused_before_any_copy() -> None:
    src, dst = np.ones((3, 8), np.uint8), np.zeros((2, 8), np.uint8)
    with pytest.raises(KernelInputError, match="copy 1 goes from page 2 of 3 to page 2 of 2"):
        copy_pages(src, np.array([0, 2]), dst, np.array([0, 2]))
    with pytest.raises(KernelInputError, match="copy 0 goes from page -1 of 3"):
        copy_pages(src, np.array([-1]), dst, np.array([0]))
    assert not dst.any()


def test_pages_of_unequal_size_are_refused() -> None:
    with pytest.raises(KernelInputError, match="a page of src has 8 bytes, one of dst 4"):
        copy_pages(np.ones((3, 8), np.uint8), np.array([0]), np.ones((3, 1), np.float32), np.array([0]))
    with pytest.raises(KernelInputError, match=r"dst_ids has shape \(1,\); it must be \(2,\)"):
        copy_pages(np.ones((3, 8), np.uint8), np.array([0, 1]), np.ones((3, 8), np.uint8), np.array([0]))
