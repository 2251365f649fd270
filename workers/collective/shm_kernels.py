"""The exchange itself, in machine code and without the GIL. Layout: see `shm_segment`.

Exchange number s uses the slots of parity s & 1. A rank writes its slot, posts s on its flag, waits until every flag
has reached s, then reads all slots. It writes the same parity again at s + 2, hence after everyone has posted s + 1,
hence after everyone has read s: two buffers replace a closing barrier. Waiting: a short spin, then futex rounds of
50 ms, in which the abort word and the deadline are looked at. Pure spinning collapses where ranks share cores.
"""

from typing import Any

import numpy as np

from workers.collective.atomics import (
    add_u32,
    compiled,
    futex_wait,
    futex_wake_all,
    load_u32,
    monotonic_s,
    pause,
    store_u32,
)

OK = 0
TIMED_OUT = 1
ABORTED = 2

# About 0.1 ms: as long as ranks with unequal heads wait for one another in every layer. Sleeping and being woken costs
# more than that where ranks have cores of their own; where they have not, it is soon given up.
_SPINS = 2000
_LINE = 64
_ABORT_OFFSET = 4096
_BLOCK = 4096  # floats summed at once: the block stays in the first-level cache while slot after slot is added

# scratch int64[5]: [0:2] the clock's timespec, [2:4] the timespec of one futex round, [4] the rank that was waited for
SCRATCH_WORDS = 5


@compiled
def _reached(flag_address: int, seq: int) -> bool:
    # The difference modulo 2^32, read as signed: survives the wrap of the counter.
    return bool(((np.int64(load_u32(flag_address)) - seq) & 0xFFFFFFFF) < 0x80000000)


@compiled
def _wait(base: int, peer: int, seq: int, timeout_s: float, scratch: Any) -> int:
    flag = base + peer * _LINE
    for _ in range(_SPINS):
        if _reached(flag, seq):
            return OK
        pause()
    deadline = monotonic_s(scratch) + timeout_s
    scratch[4] = peer
    while True:
        seen = load_u32(flag)
        if _reached(flag, seq):
            return OK
        if load_u32(base + _ABORT_OFFSET) != 0:
            return ABORTED
        if monotonic_s(scratch) > deadline:
            return TIMED_OUT
        add_u32(flag + 4, np.uint32(1))
        futex_wait(flag, seen, scratch.ctypes.data + 16)
        add_u32(flag + 4, np.uint32(0xFFFFFFFF))


@compiled
def post_and_wait(base: int, rank: int, world: int, seq: int, timeout_s: float, scratch: Any) -> int:  # noqa: PLR0917
    """Post exchange `seq` on this rank's flag; wait until every rank has posted it."""
    flag = base + rank * _LINE
    store_u32(flag, np.uint32(seq & 0xFFFFFFFF))
    if load_u32(flag + 4) != 0:
        futex_wake_all(flag)
    for peer in range(world):
        if peer != rank:
            status = _wait(base, peer, seq, timeout_s, scratch)
            if status != OK:
                return status
    return OK


@compiled
def abort(base: int, world: int) -> None:
    store_u32(base + _ABORT_OFFSET, np.uint32(1))
    for peer in range(world):
        futex_wake_all(base + peer * _LINE)


@compiled
def _copy(source: Any, target: Any, count: int) -> None:
    for i in range(count):
        target[i] = source[i]


@compiled
def _add(source: Any, target: Any, count: int) -> None:
    for i in range(count):
        target[i] += source[i]


@compiled
def _sum_slots(slots: Any, rank: int, x: Any) -> None:
    """x = slots[0] + slots[1] + ..., added in rank order on every rank."""
    world = slots.shape[0]
    if world == 2:  # a sum of two has the same bits in either order
        _add(slots[1 - rank], x, x.size)
        return
    for start in range(0, x.size, _BLOCK):
        count = min(_BLOCK, x.size - start)
        block = x[start : start + count]
        _copy(slots[0, start : start + count], block, count)
        for peer in range(1, world):
            _add(slots[peer, start : start + count], block, count)


@compiled
def all_reduce_f32(base: int, slots: Any, rank: int, seq: int, x: Any, timeout_s: float, scratch: Any) -> int:  # noqa: PLR0917
    """Sum `x` float32[n] in place; `slots` float32[2, world, slot]. Uses the exchanges [seq, seq + ceil(n / slot))."""
    slot = slots.shape[2]
    for start in range(0, x.size, slot):
        part = x[start : min(start + slot, x.size)]
        parity = seq & 1
        _copy(part, slots[parity, rank], part.size)
        status = post_and_wait(base, rank, slots.shape[1], seq, timeout_s, scratch)
        if status != OK:
            return status
        _sum_slots(slots[parity], rank, part)
        seq += 1
    return OK


@compiled
def all_gather_u8(  # noqa: PLR0917
    base: int, slots: Any, rank: int, seq: int, x: Any, out: Any, timeout_s: float, scratch: Any
) -> int:
    """`x` uint8[n] of each rank into `out` uint8[world, n]; `slots` uint8[2, world, slot]; exchanges as above."""
    slot = slots.shape[2]
    world = slots.shape[1]
    for start in range(0, x.size, slot):
        end = min(start + slot, x.size)
        parity = seq & 1
        _copy(x[start:end], slots[parity, rank], end - start)
        status = post_and_wait(base, rank, world, seq, timeout_s, scratch)
        if status != OK:
            return status
        for peer in range(world):
            _copy(slots[parity, peer], out[peer, start:end], end - start)
        seq += 1
    return OK
