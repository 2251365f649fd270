"""After the QKV projection: norm per head, rotate, keep q, write k and v to their page.

Halves are rotated as in transformers: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), x1 and x2 the halves of a head.
The pool's layout is described in `attention.py`; bf16 values are rounded to nearest, ties to even.
"""

from typing import Any

import numpy.typing as npt

from workers.kernels.checks import F32, I32, KernelInputError, check, check_pool
from workers.kernels.compile import kernel, part
from workers.kernels.norm import norm_row
from workers.kernels.simd import address, load_f32, load_first, stack, store_bf16, store_f32, store_first

_HEAD_BYTES = 256 * 4


@part
def _rotate(head, cos, sin, head_dim, target):  # type: ignore[no-untyped-def]
    """One head at address `head`, rotated to `target`, which may not overlap it."""
    half = head_dim // 2
    for i in range(0, half, 16):
        lanes = min(16, half - i)
        left, right = i * 4, (half + i) * 4
        c, s = load_first(cos + left, lanes), load_first(sin + left, lanes)
        x1, x2 = load_first(head + left, lanes), load_first(head + right, lanes)
        store_first(target + left, x1 * c - x2 * s, lanes)
        store_first(target + right, x2 * c + x1 * s, lanes)


@part
def _first_bad_row(positions, page_ids, num_angles, num_pages):  # type: ignore[no-untyped-def]
    for m in range(positions.size):
        if not (0 <= positions[m] < num_angles and 0 <= page_ids[m] < num_pages):
            return m
    return -1


def _make_kernel(element: str, store_element: Any, element_bytes: int) -> Any:  # noqa: C901  # two functions, one closure
    @part
    def write_head(keys, value, key_at, value_at, head_dim, page_size):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        for i in range(head_dim):
            store_element(key_at + i * page_size * element_bytes, load_f32(keys + i * 4))
        for i in range(head_dim):
            store_element(value_at + i * element_bytes, load_f32(value + i * 4))

    @kernel(
        f"int64(float32[:, ::1], float32[:, ::1], float32[:, ::1], int32[::1], int32[::1], {element}[:, :, ::1], int64,"
        " float32[:, :, ::1], int64, int64, float32[::1], float32[::1], float32)"
    )
    def rope_rows(qkv, cos, sin, positions, page_ids, pool, layer, q_out, num_kv_heads, page_size, q_norm, k_norm, eps):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        bad = _first_bad_row(positions, page_ids, cos.shape[0], pool.shape[0])
        if bad >= 0:
            return bad
        num_rows, num_heads, head_dim = q_out.shape
        head_bytes, kv_head_elements = head_dim * 4, head_dim * page_size
        normed, rotated = stack(_HEAD_BYTES), stack(_HEAD_BYTES)
        for m in range(num_rows):
            row = address(qkv) + m * qkv.shape[1] * 4
            angle = positions[m] * (head_dim // 2) * 4
            cos_at, sin_at = address(cos) + angle, address(sin) + angle
            for h in range(num_heads):
                head = row + h * head_bytes
                if q_norm.size:
                    norm_row(head, address(q_norm), head_dim, eps, normed)
                    head = normed
                _rotate(head, cos_at, sin_at, head_dim, address(q_out) + (m * num_heads + h) * head_bytes)
            slot = positions[m] % page_size
            page = (page_ids[m] * pool.shape[1] + layer) * pool.shape[2]
            for h in range(num_kv_heads):
                head = row + (num_heads + h) * head_bytes
                value = head + num_kv_heads * head_bytes
                if k_norm.size:
                    norm_row(head, address(k_norm), head_dim, eps, normed)
                    head = normed
                _rotate(head, cos_at, sin_at, head_dim, rotated)
                key_at = address(pool) + (page + h * kv_head_elements + slot) * element_bytes
                value_at = (
                    address(pool) + (page + (num_kv_heads + h) * kv_head_elements + slot * head_dim) * element_bytes
                )
                write_head(rotated, value, key_at, value_at, head_dim, page_size)
        return -1

    return rope_rows


_rope_bf16 = _make_kernel("uint16", store_bf16, 2)
_rope_f32 = _make_kernel("float32", store_f32, 4)


def rope_write(  # noqa: PLR0917
    qkv: npt.NDArray[Any],
    cos: npt.NDArray[Any],
    sin: npt.NDArray[Any],
    positions: npt.NDArray[Any],
    page_ids: npt.NDArray[Any],
    kv_pool: npt.NDArray[Any],
    layer: int,
    q_out: npt.NDArray[Any],
    num_kv_heads: int,
    page_size: int,
    q_norm: npt.NDArray[Any],
    k_norm: npt.NDArray[Any],
    eps: float,
) -> None:
    """Split qkv [M, (Hq + 2 Hkv) * D] into heads (q, then k, then v); rotated q goes to q_out [M, Hq, D], k and v to
    slot positions[m] % page_size of page page_ids[m].

    cos and sin [P, D / 2] are indexed by position; q_norm and k_norm [D] are weights of a norm per head before the
    rotation, or empty. Raises KernelInputError before anything is written.
    """
    num_rows, num_heads, head_dim = q_out.shape
    check_pool(kv_pool, layer, num_heads, num_kv_heads, head_dim, page_size)
    check("q_out", q_out, F32, (num_rows, num_heads, head_dim))
    check("qkv", qkv, F32, (num_rows, (num_heads + 2 * num_kv_heads) * head_dim))
    check("cos", cos, F32, (cos.shape[0], head_dim // 2))
    check("sin", sin, F32, cos.shape)
    check("positions", positions, I32, (num_rows,))
    check("page_ids", page_ids, I32, (num_rows,))
    check("q_norm", q_norm, F32, (head_dim,) if q_norm.size else (0,))
    check("k_norm", k_norm, F32, (head_dim,) if k_norm.size else (0,))
    rope_rows = _rope_f32 if kv_pool.dtype == F32 else _rope_bf16
    bad = rope_rows(
        qkv, cos, sin, positions, page_ids, kv_pool, layer, q_out, num_kv_heads, page_size, q_norm, k_norm, eps
    )
    if bad >= 0:
        raise KernelInputError(
            f"row {bad} has position {positions[bad]} of {cos.shape[0]} and page {page_ids[bad]} of {kv_pool.shape[0]}"
        )
