"""Words that threads of this process share, and waiting for them. Addresses are plain integers; all is sequentially
consistent. `syscall` and `sched_yield` are libc's, bound by name, so that compiled code can be cached.
"""

import platform
from typing import Any

from llvmlite import ir
from numba.core import types

from workers.kernels.compile import part
from workers.kernels.simd import I64, Builder, Value, emits

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 202)
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_EVERYBODY = 0x7FFFFFFF

sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())
_syscall: Any = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))


@emits(types.int64, types.int64)
def load_atomic(builder: Builder, where: Value) -> Value:
    return builder.load_atomic(builder.inttoptr(where, I64.as_pointer()), ordering="seq_cst", align=8)


@emits(types.void, types.int64, types.int64)
def store_atomic(builder: Builder, where: Value, value: Value) -> None:
    builder.store_atomic(value, builder.inttoptr(where, I64.as_pointer()), ordering="seq_cst", align=8)


@emits(types.int64, types.int64, types.int64)
def add_atomic(builder: Builder, where: Value, value: Value) -> Value:
    return builder.atomic_rmw("add", builder.inttoptr(where, I64.as_pointer()), value, ordering="seq_cst")


@emits(types.boolean, types.int64, types.int64, types.int64)
def exchange(builder: Builder, where: Value, expected: Value, value: Value) -> Value:
    """Whether the word was `expected` and is now `value`."""
    pointer = builder.inttoptr(where, I64.as_pointer())
    result = builder.cmpxchg(pointer, expected, value, ordering="seq_cst")
    return builder.extract_value(result, 1)


@emits(types.void, types.int64, types.int64, types.int64, types.int64)
def call_entry(builder: Builder, entry: Value, arguments: Value, part_index: Value, parts: Value) -> None:
    shape = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    builder.call(builder.inttoptr(entry, shape.as_pointer()), [arguments, part_index, parts])


@emits(types.void)
def pause(builder: Builder) -> None:
    """One turn of a spin loop: leaves the core to its sibling for some cycles."""
    if platform.machine() == "x86_64":
        shape = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), shape), [])
    else:
        builder.fence("seq_cst")


@part
def futex_wait(where: int, value: int) -> None:
    """Sleep while the low half of the word is that of `value`; may end early."""
    _syscall(_SYS_FUTEX, where, _FUTEX_WAIT_PRIVATE, value & 0xFFFFFFFF, 0, 0, 0)


@part
def futex_wake_all(where: int) -> None:
    _syscall(_SYS_FUTEX, where, _FUTEX_WAKE_PRIVATE, _EVERYBODY, 0, 0, 0)
