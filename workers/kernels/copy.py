"""Whole pages from one page-major array to another, at the speed of memory and without the GIL."""

from typing import Any

import numpy as np
import numpy.typing as npt

from workers.kernels.checks import I64, KernelInputError, check
from workers.kernels.compile import kernel
from workers.kernels.simd import address, copy_bytes


@kernel("int64(uint8[:, ::1], int64[::1], uint8[:, ::1], int64[::1])")
def _copy_pages(src, src_ids, dst, dst_ids):  # type: ignore[no-untyped-def]
    for i in range(src_ids.size):
        if not (0 <= src_ids[i] < src.shape[0] and 0 <= dst_ids[i] < dst.shape[0]):
            return i
    page_bytes = src.shape[1]
    for i in range(src_ids.size):
        copy_bytes(address(dst) + dst_ids[i] * page_bytes, address(src) + src_ids[i] * page_bytes, page_bytes)
    return -1


def _as_bytes(name: str, pages: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if pages.ndim == 0 or not pages.flags.c_contiguous:
        raise KernelInputError(f"{name} has strides {pages.strides}; it must be C-contiguous, pages first")
    return pages.reshape(pages.shape[0], -1).view(np.uint8)


def copy_pages(
    src: npt.NDArray[Any], src_ids: npt.NDArray[Any], dst: npt.NDArray[Any], dst_ids: npt.NDArray[Any]
) -> None:
    """dst[dst_ids[i]] = src[src_ids[i]] for page-major arrays [pages, ...] of equal bytes a page; ids are int64.

    `src` and `dst` may be one array as long as no page is both read and written. Raises KernelInputError before any
    page is copied.
    """
    source, target = _as_bytes("src", src), _as_bytes("dst", dst)
    check("src_ids", src_ids, I64, (src_ids.size,))
    check("dst_ids", dst_ids, I64, (src_ids.size,))
    if source.shape[1] != target.shape[1]:
        raise KernelInputError(f"a page of src has {source.shape[1]} bytes, one of dst {target.shape[1]}")
    bad = _copy_pages(source, src_ids, target, dst_ids)
    if bad >= 0:
        raise KernelInputError(
            f"copy {bad} goes from page {src_ids[bad]} of {source.shape[0]} to page {dst_ids[bad]} of {target.shape[0]}"
        )
