"""e^x for 16 lanes, the same bits on every CPU."""

import math

from workers.kernels.simd import V_F32, V_I32, Builder, F32x16, Value, call, emits, floats, ints

# Cephes' minimax coefficients of (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2], highest power first.
EXP_COEFFICIENTS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
LN2_HIGH = 0.693147182464599609375  # ln 2 rounded to float32
LN2_LOW = math.log(2.0) - LN2_HIGH
EXP_ROUNDING = 12582912.0  # adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits of the sum


@emits(F32x16, F32x16)
def exp(builder: Builder, x: Value) -> Value:
    """e^x for x <= 0 within 1.2e-7 of the true value; exactly 1 at 0; 0 below -87 (minus infinity too); NaN stays NaN.

    x = n ln 2 + r; the polynomial gives e^r, adding n to the exponent gives the rest.
    """

    def fused(a: Value, b: Value, c: Value) -> Value:
        return call(builder, "llvm.fma.v16f32", V_F32, [a, b, c])

    shifted = fused(x, floats(1.0 / math.log(2.0)), floats(EXP_ROUNDING))
    n = builder.fsub(shifted, floats(EXP_ROUNDING))
    r = fused(n, floats(-LN2_LOW), fused(n, floats(-LN2_HIGH), x))
    poly = floats(EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        poly = fused(poly, r, floats(coefficient))
    near_one = builder.fadd(fused(builder.fmul(poly, r), r, r), floats(1.0))
    exponent = builder.shl(builder.bitcast(shifted, V_I32), ints(23))
    value = builder.bitcast(builder.add(builder.bitcast(near_one, V_I32), exponent), V_F32)
    return builder.select(builder.fcmp_ordered("<", x, floats(-87.0)), floats(0.0), value)
