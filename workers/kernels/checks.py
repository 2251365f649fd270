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
