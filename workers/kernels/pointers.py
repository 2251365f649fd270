"""Addresses as typed pointers, for numba.carray."""

from llvmlite import ir
from numba.core import types
from numba.core.types.misc import CPointer

from workers.kernels.simd import Builder, Value, emits


@emits(CPointer(types.float32), types.int64)
def floats_at(builder: Builder, where: Value) -> Value:
    return builder.inttoptr(where, ir.FloatType().as_pointer())


@emits(CPointer(types.int32), types.int64)
def int32s_at(builder: Builder, where: Value) -> Value:
    return builder.inttoptr(where, ir.IntType(32).as_pointer())


@emits(CPointer(types.int64), types.int64)
def int64s_at(builder: Builder, where: Value) -> Value:
    return builder.inttoptr(where, ir.IntType(64).as_pointer())


@emits(CPointer(types.uint16), types.int64)
def uint16s_at(builder: Builder, where: Value) -> Value:
    return builder.inttoptr(where, ir.IntType(16).as_pointer())
