"""Both halves of a layer as one CPU kernel each, so that a step makes few calls from Python.

They call the same kernels in the same order as the single operations do, and give the same bits. One thread only.
"""

import functools
from typing import Any

from workers.kernels import activation, attention, linear, norm, rope
from workers.kernels.compile import kernel

_add = activation._add_inplace
_silu_mul = activation._silu_mul
_norm = norm._norm_rows


@functools.cache
def attention_half(weight: str, element: str) -> Any:
    """The kernel for weights and KV of type "uint16" (bfloat16 bits) or "float32".

    x [M, H] += h unless `is_first`; then h = output projection of attention over norm(x). Returns the first row whose
    position, page or table is out of bounds, or -1.
    """
    multiply = linear._multiply_bf16 if weight == "uint16" else linear._multiply_f32
    rope_rows = rope._rope_bf16 if element == "uint16" else rope._rope_f32
    attend = attention._attend_bf16 if element == "uint16" else attention._attend_f32

    @kernel(
        "int64(boolean, float32[:, ::1], float32[:, ::1], float32[::1], float32,"
        f" {weight}[:, :, ::1], float32[::1], float32[:, ::1],"
        f" float32[:, ::1], float32[:, ::1], int32[::1], int32[::1], {element}[:, :, ::1], int64, float32[:, :, ::1],"
        " int64, int64, float32[::1], float32[::1],"
        " int32[::1], int32[:, ::1], float32, float32[:, ::1],"
        f" {weight}[:, :, ::1], float32[::1])"
    )
    def run(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        is_first, x, h, norm_weight, eps,
        qkv_data, qkv_bias, qkv,
        cos, sin, positions, page_ids, pool, layer, q,
        num_kv_heads, page_size, q_norm, k_norm,
        row_tables, page_tables, scale, attended,
        o_data, o_bias,
    ):  # fmt: skip
        if not is_first:
            _add(x, h)
        _norm(x, norm_weight, eps, h)
        multiply(h, qkv_data, qkv_bias, qkv, 0, 1)
        bad = rope_rows(
            qkv, cos, sin, positions, page_ids, pool, layer, q, num_kv_heads, page_size, q_norm, k_norm, eps
        )
        if bad < 0:
            bad = attend(
                q, pool, layer, row_tables, positions, page_tables, num_kv_heads, page_size, scale, attended, 0, 1
            )
        if bad < 0:
            multiply(attended, o_data, o_bias, h, 0, 1)
        return bad

    return run


@functools.cache
def feed_forward_half(weight: str) -> Any:
    """The kernel for weights of type "uint16" (bfloat16 bits) or "float32": x += h; then h = MLP of norm(x)."""
    multiply = linear._multiply_bf16 if weight == "uint16" else linear._multiply_f32

    @kernel(
        "void(float32[:, ::1], float32[:, ::1], float32[::1], float32,"
        f" {weight}[:, :, ::1], float32[::1], float32[:, ::1], float32[:, ::1], {weight}[:, :, ::1], float32[::1])"
    )
    def run(x, h, norm_weight, eps, gate_up_data, gate_up_bias, gate_up, mlp, down_data, down_bias):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        _add(x, h)
        _norm(x, norm_weight, eps, h)
        multiply(h, gate_up_data, gate_up_bias, gate_up, 0, 1)
        _silu_mul(gate_up, mlp)
        multiply(mlp, down_data, down_bias, h, 0, 1)

    return run
