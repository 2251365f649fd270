"""The greedy choice."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.kernels.checks import F32, I64, KernelInputError, check
from workers.kernels.compile import kernel
from workers.kernels.simd import address, first_equal, keep_first, larger, largest_lane, load_first, splat

_LOWEST = np.float32(-math.inf)


@kernel("void(float32[:, ::1], float32[::1], int64[::1])")
def _argmax_rows(logits, values, indices):  # type: ignore[no-untyped-def]
    num_rows, width = logits.shape
    for m in range(num_rows):
        row = address(logits) + m * width * 4
        top = splat(_LOWEST)
        for i in range(0, width, 16):
            lanes = min(16, width - i)
            top = larger(keep_first(load_first(row + i * 4, lanes), lanes), top)
        values[m] = largest_lane(top)
        indices[m] = 0
        wanted = splat(values[m])
        for i in range(0, width, 16):
            lanes = min(16, width - i)
            at = first_equal(load_first(row + i * 4, lanes), wanted)
            if at < lanes:
                indices[m] = i + at
                break


def argmax_rows(logits: npt.NDArray[Any], values: npt.NDArray[Any], indices: npt.NDArray[Any]) -> None:
    """The largest of each row of logits [M, V] and where it first stands: values [M] float32, indices [M] int64.

    NaN never wins; a row of nothing but NaN gives minus infinity at 0. Raises KernelInputError.
    """
    num_rows, width = logits.shape
    if width == 0:
        raise KernelInputError(f"logits has shape {logits.shape}; it must have at least one column")
    check("logits", logits, F32, (num_rows, width))
    check("values", values, F32, (num_rows,))
    check("indices", indices, I64, (num_rows,))
    _argmax_rows(logits, values, indices)
