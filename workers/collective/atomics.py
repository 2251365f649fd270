"""Atomic words and futexes in shared memory, for numba code without the GIL and without a compiler at install.

Addresses are plain integers. Loads are acquire, stores sequentially consistent: a store followed by a load of another
word (flag, then sleepers) must not be swapped. `syscall` and `clock_gettime` are libc's, bound by name, so that
compiled code can be cached. Linux only; x86-64 and aarch64.
"""

import platform
from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from workers.code_cache import SourceKeyedCache

Function = TypeVar("Function", bound=Callable[..., Any])

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 202)
_IS_X86 = platform.machine() == "x86_64"
_FUTEX_WAIT = 0  # not the PRIVATE kind: the word is shared between processes
_FUTEX_WAKE = 1
_CLOCK_MONOTONIC = 1

_syscall = types.ExternalFunction(
    "syscall", types.int64(types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64)
)
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))

_U32 = ir.IntType(32)


def compiled(function: Function) -> Function:
    """Machine code at the first call, from the cache later; runs without the GIL."""
    dispatcher = njit(nogil=True)(function)
    dispatcher._cache = SourceKeyedCache(function)
    return cast(Function, dispatcher)


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _U32.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def load_u32(_typing: Any, address: Any) -> Any:  # noqa: ARG001  # numba reads the parameter names
    """The uint32 at `address`, with acquire order."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word(builder, args[0]), ordering="acquire", align=4)

    return types.uint32(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store_u32(_typing: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Put `value` at `address`, sequentially consistent."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _word(builder, args[0]), ordering="seq_cst", align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint32), codegen


@intrinsic  # type: ignore[untyped-decorator]
def add_u32(_typing: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Add `value` to the uint32 at `address`, sequentially consistent; the value before is returned."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, args[0]), args[1], ordering="seq_cst")

    return types.uint32(types.int64, types.uint32), codegen


@intrinsic  # type: ignore[untyped-decorator]
def pause(_typing: Any) -> Any:
    """One turn of a spin loop: leaves the core to its sibling for some cycles."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        if _IS_X86:
            shape = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), shape), [])
        else:
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@compiled
def futex_wait(address: int, value: Any, timespec_address: int) -> None:
    """Sleep while the word is `value`, for at most the timespec's time."""
    _syscall(_SYS_FUTEX, address, _FUTEX_WAIT, value, timespec_address, 0, 0)


@compiled
def futex_wake_all(address: int) -> None:
    _syscall(_SYS_FUTEX, address, _FUTEX_WAKE, 0x7FFFFFFF, 0, 0, 0)


@compiled
def monotonic_s(scratch: Any) -> float:
    """Seconds of CLOCK_MONOTONIC; `scratch` int64[2] receives the timespec."""
    _clock_gettime(_CLOCK_MONOTONIC, scratch.ctypes.data)
    return float(scratch[0] + scratch[1] * 1e-9)
