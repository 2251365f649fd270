"""Explicit 16-lane float vectors inside numba kernels.

`F32x16` is a numba type of its own: it lives in one AVX-512 register or two AVX2 registers, and every operation on it
is one fixed sequence of IEEE operations, so results do not depend on the CPU. Memory is named by addresses
(`address(array)` plus bytes); nothing here checks bounds, the Python faces of the kernels do.
"""

import inspect
import math
import operator
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 16
VECTOR_BYTES = 64
I16, I32, I64, PTR = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.PointerType()
F32 = ir.FloatType()
V_F32, V_I32, V_I16 = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES), ir.VectorType(I16, LANES)

POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD

Builder: TypeAlias = ir.IRBuilder
Value: TypeAlias = ir.Value


class _F32x16(types.Type):
    def __init__(self) -> None:
        super().__init__(name="F32x16")


F32x16 = _F32x16()


@register_model(_F32x16)
class _F32x16Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, V_F32)


def _register_operator(function: Any, instruction: str) -> None:
    @infer_global(function)
    class _Template(AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Any, _keywords: Any) -> Any:
            return signature(F32x16, F32x16, F32x16) if tuple(args) == (F32x16, F32x16) else None

    def lower(_context: Any, builder: Builder, _signature: Any, args: Any) -> Value:
        return getattr(builder, instruction)(*args)

    lower_builtin(function, F32x16, F32x16)(lower)


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _register_operator(_function, _instruction)


def emits(result: Any, *arguments: Any) -> Callable[[Callable[..., Value | None]], Any]:
    """Make a numba function of these types out of a function that writes its IR: `emit(builder, *values)`."""

    def decorate(emit: Callable[..., Value | None]) -> Any:
        def define(_typing: Any, *_arguments: Any) -> Any:
            def generate(context: Any, builder: Builder, _signature: Any, values: Any) -> Value:
                value = emit(builder, *values)
                return context.get_dummy_value() if value is None else value

            return result(*arguments), generate

        parameters = [inspect.Parameter(f"arg{i}", POSITIONAL) for i in range(len(arguments) + 1)]
        define.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # numba folds calls by it
        define.__name__ = define.__qualname__ = emit.__name__
        return intrinsic(define)

    return decorate


def floats(value: float) -> ir.Constant:
    """`value` in every lane."""
    nearest = struct.unpack("f", struct.pack("f", value))[0]  # llvmlite wants a value that float32 holds exactly
    return ir.Constant(V_F32, [nearest] * LANES)


def ints(value: int) -> ir.Constant:
    return ir.Constant(V_I32, [value] * LANES)


def call(builder: Builder, name: str, result: ir.Type, args: list[Value]) -> Value:
    function_type = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), args)


def _splat(builder: Builder, scalar: Value) -> Value:
    undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ints(0))


def _lanes_below(builder: Builder, count: Value) -> Value:
    """A mask: lane < count."""
    limit = _splat(builder, builder.trunc(count, I32))
    return builder.icmp_signed("<", ir.Constant(V_I32, list(range(LANES))), limit)


def _larger(builder: Builder, a: Value, b: Value) -> Value:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _fold(builder: Builder, vector: Value, combine: Callable[[Builder, Value, Value], Value]) -> Value:
    """Combine lanes 0-7 with 8-15, then 4, 2 and 1 apart: one fixed tree, so one fixed rounding."""
    undefined, width = ir.Constant(V_F32, ir.Undefined), LANES // 2
    while width:
        order = [lane ^ width for lane in range(LANES)]
        vector = combine(builder, vector, builder.shuffle_vector(vector, undefined, ir.Constant(V_I32, order)))
        width //= 2
    return builder.extract_element(vector, ir.Constant(I32, 0))


@intrinsic  # type: ignore[untyped-decorator]
def address(_typing: Any, array: Any) -> Any:
    """Address of an array's first element."""

    def generate(context: Any, builder: Builder, sig: Any, args: Any) -> Value:
        view = context.make_array(sig.args[0])(context, builder, args[0])
        return builder.ptrtoint(view.data, I64)

    return types.int64(array), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def stack(_typing: Any, num_bytes: Any) -> Any:
    """Address of `num_bytes` (a constant) of uninitialised stack, aligned to 64, alive until the function returns."""

    def generate(_context: Any, builder: Builder, sig: Any, _args: Any) -> Value:
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(ir.IntType(8), sig.args[0].literal_value))
            room.align = 64
        return builder.ptrtoint(room, I64)

    return types.int64(num_bytes), generate


@emits(types.void, types.int64, types.int64)
def store_i64(builder: Builder, where: Value, value: Value) -> None:
    builder.store(value, builder.inttoptr(where, PTR), align=8)


@emits(types.int64, types.int64)
def load_i64(builder: Builder, where: Value) -> Value:
    return builder.load(builder.inttoptr(where, PTR), align=8, typ=I64)


@emits(types.float32, types.int64)
def load_f32(builder: Builder, where: Value) -> Value:
    return builder.load(builder.inttoptr(where, PTR), align=4, typ=F32)


@emits(types.void, types.int64, types.float32)
def store_f32(builder: Builder, where: Value, value: Value) -> None:
    builder.store(value, builder.inttoptr(where, PTR), align=4)


@emits(types.void, types.int64, types.float32)
def store_bf16(builder: Builder, where: Value, value: Value) -> None:
    """Round to the nearest bf16, ties to even; NaN stays NaN."""
    bits = builder.bitcast(value, I32)
    high = builder.lshr(bits, ir.Constant(I32, 16))
    tie_to_even = builder.add(builder.and_(high, ir.Constant(I32, 1)), ir.Constant(I32, 0x7FFF))
    rounded = builder.lshr(builder.add(bits, tie_to_even), ir.Constant(I32, 16))
    quiet_nan = builder.or_(high, ir.Constant(I32, 0x40))
    nearest = builder.select(builder.fcmp_unordered("uno", value, value), quiet_nan, rounded)
    builder.store(builder.trunc(nearest, I16), builder.inttoptr(where, PTR), align=2)


@emits(F32x16, types.int64)
def load(builder: Builder, where: Value) -> Value:
    return builder.load(builder.inttoptr(where, PTR), align=4, typ=V_F32)


@emits(F32x16, types.int64, types.int64)
def load_first(builder: Builder, where: Value, count: Value) -> Value:
    """The first `count` <= 16 lanes; the rest are zeros and their memory is not touched."""
    args = [builder.inttoptr(where, PTR), ir.Constant(I32, 4), _lanes_below(builder, count), floats(0.0)]
    return call(builder, "llvm.masked.load.v16f32.p0", V_F32, args)


@emits(F32x16, types.int64, types.int64)
def load_first_bf16(builder: Builder, where: Value, count: Value) -> Value:
    """The first `count` <= 16 bf16, widened (they are the high halves of floats); the rest are zeros, not touched."""
    lanes, zeros = _lanes_below(builder, count), ir.Constant(V_I16, [0] * LANES)
    args = [builder.inttoptr(where, PTR), ir.Constant(I32, 2), lanes, zeros]
    words = builder.zext(call(builder, "llvm.masked.load.v16i16.p0", V_I16, args), V_I32)
    return builder.bitcast(builder.shl(words, ints(16)), V_F32)


@emits(types.void, types.int64, F32x16)
def store(builder: Builder, where: Value, vector: Value) -> None:
    builder.store(vector, builder.inttoptr(where, PTR), align=4)


@emits(types.void, types.int64, F32x16, types.int64)
def store_first(builder: Builder, where: Value, vector: Value, count: Value) -> None:
    """Store the first `count` <= 16 lanes and touch no other memory."""
    args = [vector, builder.inttoptr(where, PTR), ir.Constant(I32, 4), _lanes_below(builder, count)]
    call(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), args)


@emits(F32x16, types.float32)
def splat(builder: Builder, scalar: Value) -> Value:
    return _splat(builder, scalar)


@emits(F32x16, F32x16, F32x16, F32x16)
def fma(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, rounded once."""
    return call(builder, "llvm.fma.v16f32", V_F32, [a, b, c])


@emits(F32x16, F32x16, F32x16)
def larger(builder: Builder, a: Value, b: Value) -> Value:
    """a > b ? a : b, so b where either is NaN."""
    return _larger(builder, a, b)


@emits(types.float32, F32x16)
def largest_lane(builder: Builder, vector: Value) -> Value:
    return _fold(builder, vector, _larger)


@emits(types.float32, F32x16)
def sum_lanes(builder: Builder, vector: Value) -> Value:
    return _fold(builder, vector, lambda b, low, high: b.fadd(low, high))


@emits(F32x16, F32x16, types.int64)
def keep_first(builder: Builder, vector: Value, count: Value) -> Value:
    """Lanes from `count` on become minus infinity. `count` may be negative or above 16."""
    return builder.select(_lanes_below(builder, count), vector, floats(-math.inf))


@emits(F32x16, F32x16)
def negative_magnitude(builder: Builder, vector: Value) -> Value:
    sign = ints(0x80000000)
    return builder.bitcast(builder.or_(builder.bitcast(vector, V_I32), sign), V_F32)


@emits(F32x16, F32x16, F32x16, F32x16)
def where_negative(builder: Builder, sign_of: Value, negative: Value, positive: Value) -> Value:
    """negative where sign_of < 0, else positive (also for NaN)."""
    return builder.select(builder.fcmp_ordered("<", sign_of, floats(0.0)), negative, positive)


@emits(types.int64, F32x16, F32x16)
def first_equal(builder: Builder, a: Value, b: Value) -> Value:
    """The lowest lane in which a == b, or 16."""
    equal = builder.bitcast(builder.fcmp_ordered("==", a, b), I16)
    return builder.zext(call(builder, "llvm.cttz.i16", I16, [equal, ir.Constant(ir.IntType(1), 0)]), I64)


@emits(types.void, types.int64, types.int64, types.int64)
def copy_bytes(builder: Builder, target: Value, source: Value, count: Value) -> None:
    """memcpy."""
    args = [builder.inttoptr(target, PTR), builder.inttoptr(source, PTR), count, ir.Constant(ir.IntType(1), 0)]
    call(builder, "llvm.memcpy.p0.p0.i64", ir.VoidType(), args)
