"""Whole pages from one place in memory to others, at the speed of memory, without the GIL, and their checksums with it.

Copying is bound by memory and the checksum by the core, so both are made in one pass, which takes no longer than
memcpy: it asks for the source one block ahead, and its stores go around the caches where there is much to copy, for a
line that is overwritten whole need not be fetched first. What fits the caches goes through them: it may be there.

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
    BLOCK_BYTES,
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
    store,
)

CHECKSUM = "crc32c" if HAS_CRC_INSTRUCTION else "crc32"
_IDS = "int64[::1]"
_PAGES = "uint8[:, :]"
_MUCH_BYTES = 16 << 20  # from here on stores around the caches were the faster ones, with 2 MiB of second-level cache
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


def _prefetch(builder: Builder, where: Value, to_write: int) -> None:
    hints = [ir.Constant(I32, value) for value in (to_write, 3, 1)]  # to keep, data
    call(builder, "llvm.prefetch.p0", ir.VoidType(), [builder.inttoptr(where, PTR), *hints])


@emits(types.void, types.int64)
def _ask_for(builder: Builder, where: Value) -> None:
    """Bring this line into the cache, to be read; any address will do."""
    _prefetch(builder, where, 0)


@emits(types.void, types.int64)
def _ask_to_write(builder: Builder, where: Value) -> None:
    """Bring this line into the cache, to be written; any address will do."""
    _prefetch(builder, where, 1)


def _line_part(copying: bool, around_caches: bool) -> Any:
    """`part(target, source)`: one line of each lane is asked for a block ahead and, if `copying`, copied."""
    put = _store_around_caches if around_caches else store

    @part
    def line(target, source):  # type: ignore[no-untyped-def]
        for lane in range(0, BLOCK_BYTES, LANE_BYTES):
            _ask_for(source + lane + BLOCK_BYTES)
            if copying and not around_caches:
                _ask_to_write(target + lane + BLOCK_BYTES // 2)
        if copying:
            for lane in range(0, BLOCK_BYTES, LANE_BYTES):
                put(target + lane, load(source + lane))

    return line


def _page_part(copying: bool, around_caches: bool) -> Any:
    """`part(target, source, count)` -> checksum of the source, which is copied as well if `copying`."""
    line = _line_part(copying, around_caches)

    @part
    def page(target, source, count):  # type: ignore[no-untyped-def]
        head = min(-target & (VECTOR_BYTES - 1), count) if copying else 0
        if copying:
            copy_bytes(target, source, head)
        state, at = crc_few(np.int64(START), source, head), head
        while at + BLOCK_BYTES <= count:
            second, third = np.int64(0), np.int64(0)
            for i in range(at, at + LANE_BYTES, VECTOR_BYTES):
                line(target + i, source + i)
                for k in range(i, i + VECTOR_BYTES, 8):
                    state = crc_word(state, load_i64(source + k))
                    second = crc_word(second, load_i64(source + k + LANE_BYTES))
                    third = crc_word(third, load_i64(source + k + 2 * LANE_BYTES))
            state = join_lanes(state, second, third)
            at += BLOCK_BYTES
        if copying:
            copy_bytes(target + at, source + at, count - at)
        return crc_few(state, source + at, count - at) ^ np.int64(START)

    return page


def _make_copy(around_caches: bool) -> Any:
    """`copy(src, src_ids, dst, dst_ids, sums)`."""
    copy_page = _page_part(True, around_caches)

    @kernel(f"void({_PAGES}, {_IDS}, {_PAGES}, {_IDS}, uint32[::1])")
    def copy(src, src_ids, dst, dst_ids, sums):  # type: ignore[no-untyped-def]
        for i in range(src_ids.size):
            source, target = address(src) + src_ids[i] * src.strides[0], address(dst) + dst_ids[i] * dst.strides[0]
            sums[i] = copy_page(target, source, src.shape[1])
        _stores_seen()

    return copy


def _make_checksum() -> Any:
    """`checksum(pages, ids, sums)`."""
    sum_page = _page_part(False, False)

    @kernel(f"void({_PAGES}, {_IDS}, uint32[::1])")
    def checksum(pages, ids, sums):  # type: ignore[no-untyped-def]
        for i in range(ids.size):
            sums[i] = sum_page(0, address(pages) + ids[i] * pages.strides[0], pages.shape[1])

    return checksum


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


if HAS_CRC_INSTRUCTION:
    _copy, _copy_around, _checksum = _make_copy(False), _make_copy(True), _make_checksum()
else:
    _copy = _copy_around = _copy_with_zlib
    _checksum = _checksum_by_zlib


def copy_pages(src: Bytes, src_ids: Int64, dst: Bytes, dst_ids: Int64, much: bool = False) -> Sums:
    """dst[dst_ids[i]] = src[src_ids[i]] for arrays [pages, page_bytes]; the checksums of the pages as read, [n].

    Pages may lie apart, bytes of one must not. `src` and `dst` may be one array as long as no page is both read and
    written. `much`: this is part of a copy that the caches cannot hold (`is_much`). Raises KernelInputError before any
    page is copied.
    """
    _check_pages("src", src, src_ids)
    _check_pages("dst", dst, dst_ids)
    if src.shape[1] != dst.shape[1] or src_ids.size != dst_ids.size:
        raise KernelInputError(
            f"{src_ids.size} pages of {src.shape[1]} bytes cannot go to {dst_ids.size} pages of {dst.shape[1]} bytes"
        )
    sums: Sums = np.empty(src_ids.size, np.uint32)
    (_copy_around if much else _copy)(src, src_ids, dst, dst_ids, sums)
    return sums


def is_much(num_bytes: int) -> bool:
    """Whether a copy of so many bytes is faster around the caches."""
    return num_bytes >= _MUCH_BYTES


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
