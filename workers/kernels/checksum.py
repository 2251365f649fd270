"""CRC-32C (Castagnoli) by the CPU's own instruction, three lanes at a time.

The checksum is the standard one of the bytes in their order: b"123456789" gives 0xE3069283, and lanes are a matter of
speed alone. The instruction takes 8 bytes every cycle but gives its result three cycles later, so three stretches of
`LANE_BYTES` go side by side. They are joined by what the polynomial makes of a state that so many zero bytes follow.

Parts here are compiled into the kernels of `workers.kernels.copy`, where `HAS_CRC_INSTRUCTION`.
"""

import platform

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.core.registry import cpu_target

from workers.kernels.compile import part
from workers.kernels.simd import I32, I64, Builder, Value, call, emits, load_i64

LANE_BYTES = 1024
BLOCK_BYTES = 3 * LANE_BYTES
START = 0xFFFFFFFF  # the first state; the checksum is the last one, inverted
_POLYNOMIAL = 0x82F63B78  # reflected
I8 = ir.IntType(8)


def _has_instruction() -> bool:
    """Whether code for it can be made: LLVM ends the process where it cannot."""
    _triple, _cpu, features = cpu_target.target_context.codegen().magic_tuple()
    return platform.machine() in ("x86_64", "AMD64") and "+crc32" in features.split(",")


HAS_CRC_INSTRUCTION = _has_instruction()


def _applied(operator: list[int], state: int) -> int:
    """A linear map of states, given as its images of the 32 bits."""
    result = 0
    for bit in range(32):
        if state >> bit & 1:
            result ^= operator[bit]
    return result


def _past_zeros(num_bytes: int) -> npt.NDArray[np.uint32]:
    """[4, 256]: the state after `num_bytes` zero bytes, a power of two, for each value of each byte of the state."""
    operator = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # one zero bit
    for _ in range((8 * num_bytes).bit_length() - 1):
        operator = [_applied(operator, image) for image in operator]
    return np.array([[_applied(operator, v << 8 * byte) for v in range(256)] for byte in range(4)], np.uint32)


_PAST_LANE, _PAST_TWO_LANES = _past_zeros(LANE_BYTES), _past_zeros(2 * LANE_BYTES)


@emits(types.int64, types.int64, types.int64)
def crc_word(builder: Builder, state: Value, word: Value) -> Value:
    """The state after 8 more bytes."""
    return call(builder, "llvm.x86.sse42.crc32.64.64", I64, [state, word])


@emits(types.int64, types.int64, types.int64)
def crc_byte_at(builder: Builder, state: Value, where: Value) -> Value:
    """The state after the byte at this address."""
    byte = builder.load(builder.inttoptr(where, I8.as_pointer()), typ=I8)
    return builder.zext(call(builder, "llvm.x86.sse42.crc32.32.8", I32, [builder.trunc(state, I32), byte]), I64)


@part
def crc_few(state, where, count):  # type: ignore[no-untyped-def]
    """The state after `count` more bytes, in one lane."""
    words = count // 8 * 8
    for i in range(0, words, 8):
        state = crc_word(state, load_i64(where + i))
    for i in range(words, count):
        state = crc_byte_at(state, where + i)
    return state


@part
def _moved(table, state):  # type: ignore[no-untyped-def]
    low = table[0, state & 0xFF] ^ table[1, state >> 8 & 0xFF]
    return np.int64(low ^ table[2, state >> 16 & 0xFF] ^ table[3, state >> 24 & 0xFF])


@part
def join_lanes(first, second, third):  # type: ignore[no-untyped-def]
    """The state after a block. Its lanes ran from the state before, from 0 and from 0."""
    return _moved(_PAST_TWO_LANES, first) ^ _moved(_PAST_LANE, second) ^ third
