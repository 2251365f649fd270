"""Whole pages from one place in memory to others, at the speed of memory, without the GIL, and their checksums with it.

Copying is bound by memory and the checksum by the core, so both are made in one pass, which takes no longer than
memcpy: it asks for the source ahead of time, and its stores go around the caches, for a line that is overwritten whole
need not be fetched first, and nobody reads it soon. They go in one ascending stream: in three at once, one for each
lane of the checksum, an AMD CPU (Zen, AVX2) stored 1.3 GB a second where it stores 17 so.

`CHECKSUM` names the definition: "crc32c", or "crc32" (that of zlib) on a CPU without the instruction.
"""

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types

from workers.kernels.checks import I64 as INT64
from workers.kernels.checks import KernelInputError, check
from workers.kernels.checksum import (
    HAS_CRC_INSTRUCTION,
    LANE_BYTES,
    START,
    crc_few,
    crc_word,
    join_lanes,
)
from workers.kernels.compile import kernel, part
from workers.kernels.simd import (
    I32,
    PTR,
    VECTOR_BYTES,
    Builder,
    F32x16,
    Value,
    address,
    call,
    copy_bytes,
    emits,
    load,
    load_i64,
)

CHECKSUM = "crc32c" if HAS_CRC_INSTRUCTION else "crc32"
_IDS = "int64[::1]"
_PAGES = "uint8[:, :]"
_AHEAD_BYTES = 4096
_TOUCH_BYTES = 65536  # what Linux maps at once around a page that is read for the first time

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
Sums = npt.NDArray[np.uint32]


@emits(types.void, types.int64, F32x16)
def _store_around_caches(builder: Builder, where: Value, vector: Value) -> None:
    """`where` is a multiple of 64."""
    stored = builder.store(vector, builder.inttoptr(where, PTR), align=VECTOR_BYTES)
    stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))


@emits(types.void)
def _stores_seen(builder: Builder) -> None:
    """Stores around the caches are in no order; after this they come before all that follows."""
    if HAS_CRC_INSTRUCTION:
        shape = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), shape), [])
    else:
        builder.fence("seq_cst")


@emits(types.void, types.int64)
def _ask_for(builder: Builder, where: Value) -> None:
    """Bring this line into the cache; any address will do."""
    hints = [ir.Constant(I32, value) for value in (0, 3, 1)]  # to read, to keep, data
    call(builder, "llvm.prefetch.p0", ir.VoidType(), [builder.inttoptr(where, PTR), *hints])


def _page_part(copying: bool) -> Any:
    """`part(target, source, count)` -> checksum of the source, which is copied as well if `copying`."""

    @part
    def block(target, source, state):  # type: ignore[no-untyped-def]
        second, third = np.int64(0), np.int64(0)
        for i in range(0, LANE_BYTES, VECTOR_BYTES):
            for at in range(3 * i, 3 * (i + VECTOR_BYTES), VECTOR_BYTES):
                _ask_for(source + at + _AHEAD_BYTES)
                if copying:
                    _store_around_caches(target + at, load(source + at))
            for k in range(source + i, source + i + VECTOR_BYTES, 8):
                state = crc_word(state, load_i64(k))
                second = crc_word(second, load_i64(k + LANE_BYTES))
                third = crc_word(third, load_i64(k + 2 * LANE_BYTES))
        return join_lanes(state, second, third)

    @part
    def page(target, source, count):  # type: ignore[no-untyped-def]
        at = min(-target & (VECTOR_BYTES - 1), count) if copying else 0
        if copying:
            copy_bytes(target, source, at)
        state = crc_few(np.int64(START), source, at)
        while at + 3 * LANE_BYTES <= count:
            state = block(target + at, source + at, state)
            at += 3 * LANE_BYTES
        if copying:
            copy_bytes(target + at, source + at, count - at)
        return crc_few(state, source + at, count - at) ^ np.int64(START)

    return page


def _make_kernels() -> tuple[Any, Any]:
    """`copy(src, src_ids, dst, dst_ids, sums)` and `checksum(pages, ids, sums)`."""
    copy_page, sum_page = _page_part(copying=True), _page_part(copying=False)

    @kernel(f"void({_PAGES}, {_IDS}, {_PAGES}, {_IDS}, uint32[::1])")
    def copy(src, src_ids, dst, dst_ids, sums):  # type: ignore[no-untyped-def]
        for i in range(src_ids.size):
            source, target = address(src) + src_ids[i] * src.strides[0], address(dst) + dst_ids[i] * dst.strides[0]
            sums[i] = copy_page(target, source, src.shape[1])
        _stores_seen()

    @kernel(f"void({_PAGES}, {_IDS}, uint32[::1])")
    def checksum(pages, ids, sums):  # type: ignore[no-untyped-def]
        for i in range(ids.size):
            sums[i] = sum_page(0, address(pages) + ids[i] * pages.strides[0], pages.shape[1])

    return copy, checksum


@kernel(f"void({_PAGES}, {_IDS}, {_PAGES}, {_IDS})")
def _copy_plainly(src, src_ids, dst, dst_ids):  # type: ignore[no-untyped-def]
    for i in range(src_ids.size):
        target = address(dst) + dst_ids[i] * dst.strides[0]
        copy_bytes(target, address(src) + src_ids[i] * src.strides[0], src.shape[1])


def _checksum_by_zlib(pages: Bytes, ids: Int64, sums: Sums) -> None:
    for i, page in enumerate(ids.tolist()):
        sums[i] = zlib.crc32(pages[page])


def _copy_with_zlib(src: Bytes, src_ids: Int64, dst: Bytes, dst_ids: Int64, sums: Sums) -> None:
    _copy_plainly(src, src_ids, dst, dst_ids)
    _checksum_by_zlib(src, src_ids, sums)


_copy, _checksum = _make_kernels() if HAS_CRC_INSTRUCTION else (_copy_with_zlib, _checksum_by_zlib)


def copy_pages(src: Bytes, src_ids: Int64, dst: Bytes, dst_ids: Int64) -> Sums:
    """dst[dst_ids[i]] = src[src_ids[i]] for arrays [pages, page_bytes]; the checksums of the pages as read, [n].

    Pages may lie apart, bytes of one must not. `src` and `dst` may be one array as long as no page is both read and
    written. Raises KernelInputError before any page is copied.
    """
    _check_pages("src", src, src_ids)
    _check_pages("dst", dst, dst_ids)
    if src.shape[1] != dst.shape[1] or src_ids.size != dst_ids.size:
        raise KernelInputError(
            f"{src_ids.size} pages of {src.shape[1]} bytes cannot go to {dst_ids.size} pages of {dst.shape[1]} bytes"
        )
    sums: Sums = np.empty(src_ids.size, np.uint32)
    _copy(src, src_ids, dst, dst_ids, sums)
    return sums


def checksum_pages(pages: Bytes, ids: Int64) -> Sums:
    """The checksum of each page pages[ids[i]] of an array [pages, page_bytes], [n]. Raises KernelInputError."""
    _check_pages("pages", pages, ids)
    sums: Sums = np.empty(ids.size, np.uint32)
    _checksum(pages, ids, sums)
    return sums


@kernel(f"int64({_PAGES}, {_IDS})")
def _touch(pages, ids):  # type: ignore[no-untyped-def]
    total = 0
    for i in range(ids.size):
        for at in range(0, pages.shape[1], _TOUCH_BYTES):
            total += pages[ids[i], at]
        total += pages[ids[i], pages.shape[1] - 1]
    return total


def map_pages(pages: Bytes, ids: Int64) -> None:
    """Read of each page what makes the system map it: 16 times fewer faults than the first writes would take."""
    _check_pages("pages", pages, ids)
    _touch(pages, ids)


def _check_pages(name: str, pages: Bytes, ids: Int64) -> None:
    if pages.dtype != np.uint8 or pages.ndim != 2 or pages.strides[1] != 1:
        raise KernelInputError(
            f"{name} is {pages.dtype}{pages.shape} with strides {pages.strides}; "
            "it must be uint8 [pages, page_bytes] with the bytes of a page side by side"
        )
    check(f"{name}_ids", ids, INT64, (ids.size,))
    bad = ids[(ids < 0) | (ids >= pages.shape[0])]
    if bad.size:
        raise KernelInputError(f"{name} has {pages.shape[0]} pages; there is no page {bad[0]}")
