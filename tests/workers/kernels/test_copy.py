"""Pages from one array to another, and the checksum of what was copied."""

import sys
import threading
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import workers.kernels.copy as copy_module
from workers.kernels.checks import KernelInputError
from workers.kernels.checksum import HAS_CRC_INSTRUCTION, LANE_BYTES
from workers.kernels.copy import CHECKSUM, checksum_pages, copy_pages, map_pages

BLOCK = 3 * LANE_BYTES
needs_instruction = pytest.mark.skipif(not HAS_CRC_INSTRUCTION, reason="needs a CPU with SSE4.2")


def ids(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, np.int64)


def random_bytes(*shape: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, shape, np.uint8)


def crc32c(data: bytes) -> int:
    """Bit by bit, from the definition."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def expected(data: npt.NDArray[Any]) -> int:
    return crc32c(data.tobytes()) if CHECKSUM == "crc32c" else zlib.crc32(data)


@needs_instruction
def test_the_checksum_is_the_one_everybody_means() -> None:
    assert checksum_pages(np.frombuffer(b"123456789", np.uint8)[None].copy(), ids(0)).tolist() == [0xE3069283]
    assert checksum_pages(np.zeros((1, 32), np.uint8), ids(0)).tolist() == [0x8A9136AA]


@pytest.mark.parametrize("count", [1, 7, 480, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 63, 5000, 12288])
@pytest.mark.parametrize("offset", [0, 1, 16])
def test_any_length_at_any_address_is_copied_and_summed(count: int, offset: int) -> None:
    source, target = random_bytes(1, count + 64)[:, offset : offset + count], np.zeros((1, count + 80), np.uint8)
    sums = copy_pages(source, ids(0), target[:, 3 : 3 + count], ids(0))
    assert np.array_equal(target[:, 3 : 3 + count], source)
    assert not target[:, :3].any() and not target[:, 3 + count :].any()
    assert sums.tolist() == checksum_pages(source, ids(0)).tolist() == [expected(source)]


def test_copies_whole_pages_between_rows_that_lie_apart_and_nothing_else() -> None:
    pool, arena = random_bytes(6, 400), np.full((4, 512), 9, np.uint8)
    wanted = arena.copy()
    wanted[[3, 0], :400] = pool[[5, 2]]
    sums = copy_pages(pool, ids(5, 2), arena[:, :400], ids(3, 0))
    assert np.array_equal(arena, wanted)
    assert sums.tolist() == [expected(pool[5]), expected(pool[2])]


def test_a_bit_anywhere_changes_the_checksum() -> None:
    page = random_bytes(1, 3172)
    sums = {int(checksum_pages(page, ids(0))[0])}
    for byte in range(0, page.size, 37):
        page[0, byte] ^= 1 << byte % 8
        sums.add(int(checksum_pages(page, ids(0))[0]))
    assert len(sums) == 1 + len(range(0, page.size, 37))


def test_without_the_instruction_pages_are_copied_and_summed_by_zlib() -> None:
    source, target, sums = random_bytes(3, 5000), np.zeros((2, 5000), np.uint8), np.zeros(2, np.uint32)
    copy_module._copy_with_zlib(source, ids(2, 0), target, ids(0, 1), sums)
    assert np.array_equal(target, source[[2, 0]])
    assert sums.tolist() == [zlib.crc32(source[2]), zlib.crc32(source[0])]


def test_a_page_out_of_bounds_is_refused_before_any_copy() -> None:
    src, dst = np.ones((3, 8), np.uint8), np.zeros((2, 8), np.uint8)
    with pytest.raises(KernelInputError, match="dst has 2 pages; there is no page 2"):
        copy_pages(src, ids(0, 2), dst, ids(0, 2))
    with pytest.raises(KernelInputError, match="src has 3 pages; there is no page -1"):
        copy_pages(src, ids(-1), dst, ids(0))
    with pytest.raises(KernelInputError, match="pages has 3 pages; there is no page 3"):
        map_pages(src, ids(3))
    assert not dst.any()


def test_what_cannot_be_meant_is_refused() -> None:
    src = np.ones((3, 8), np.uint8)
    with pytest.raises(KernelInputError, match="2 pages of 8 bytes cannot go to 2 pages of 4 bytes"):
        copy_pages(src, ids(0, 1), np.ones((3, 4), np.uint8), ids(0, 1))
    with pytest.raises(KernelInputError, match="2 pages of 8 bytes cannot go to 1 pages of 8 bytes"):
        copy_pages(src, ids(0, 1), np.ones((3, 8), np.uint8), ids(0))
    with pytest.raises(KernelInputError, match="bytes of a page side by side"):
        copy_pages(src, ids(0), np.ones((3, 16), np.uint8)[:, ::2], ids(0))
    with pytest.raises(KernelInputError, match="dst_ids has dtype int32"):
        copy_pages(src, ids(0), np.ones((3, 8), np.uint8), np.array([0], np.int32))  # type: ignore[arg-type]


def test_python_runs_on_while_pages_are_copied() -> None:
    """Threads give up the GIL only where they wait or leave it: a kernel that kept it would never be seen at work."""
    pool, arena = np.ones((1, 16 << 20), np.uint8), np.ones((1, 16 << 20), np.uint8)
    started, told, ended = threading.Event(), threading.Event(), [True]

    def copy_once() -> None:
        ended[0] = False
        started.set()
        copy_pages(pool, ids(0), arena, ids(0))
        ended[0] = True
        told.set()

    seen_at_work, interval = False, sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        for _ in range(100):
            started.clear()
            told.clear()
            thread = threading.Thread(target=copy_once)
            thread.start()
            assert started.wait(60)
            seen_at_work = not ended[0]
            assert told.wait(60)
            thread.join()
            if seen_at_work:
                break
    finally:
        sys.setswitchinterval(interval)
    assert seen_at_work
