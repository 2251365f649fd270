"""Cheap checks at the Python faces of the kernels: below them nothing looks at a bound again.

KernelInputError(ValueError)
"""

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = np.dtype(np.float32)
BF16 = np.dtype(np.uint16)  # bfloat16 bits
I32 = np.dtype(np.int32)
I64 = np.dtype(np.int64)
MAX_HEAD_DIM = 256


class KernelInputError(ValueError):
    """An array has another shape, dtype or layout than a kernel can take."""


def check(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise unless `array` has exactly this dtype and shape and is C-contiguous."""
    if array.dtype is not dtype and array.dtype != dtype:
        raise KernelInputError(f"{name} has dtype {array.dtype}; it must be {dtype}")
    if array.shape != shape:
        raise KernelInputError(f"{name} has shape {array.shape}; it must be {shape}")
    if not array.flags.c_contiguous:
        raise KernelInputError(f"{name} has strides {array.strides}; it must be C-contiguous (copy it first)")


def check_pool(  # noqa: PLR0917
    pool: npt.NDArray[Any], layer: int, num_heads: int, num_kv_heads: int, head_dim: int, page_size: int
) -> None:
    """Raise unless `pool` is a KV pool [num_pages, num_layers, 2 * Hkv * page_size * D] of these sizes."""
    if pool.dtype not in (F32, BF16):
        raise KernelInputError(f"kv_pool has dtype {pool.dtype}; it must be float32 or uint16 (bf16 bits)")
    if head_dim % 16 or not 0 < head_dim <= MAX_HEAD_DIM:
        raise KernelInputError(f"the head size is {head_dim}; it must be a multiple of 16 up to {MAX_HEAD_DIM}")
    if page_size % 16 or page_size <= 0:
        raise KernelInputError(f"page_size is {page_size}; it must be a multiple of 16")
    if num_kv_heads <= 0 or num_heads % num_kv_heads:
        raise KernelInputError(f"{num_heads} query heads do not divide among {num_kv_heads} KV heads")
    if pool.ndim != 3 or not 0 <= layer < pool.shape[1]:
        raise KernelInputError(f"layer is {layer}; a kv_pool of shape {pool.shape} has no such layer")
    check("kv_pool", pool, pool.dtype, (*pool.shape[:2], 2 * num_kv_heads * page_size * head_dim))
