"""Root-mean-square norm. Squares are summed in 16 lanes and one fixed tree: only the width decides the bits."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.kernels.checks import F32, check
from workers.kernels.compile import kernel, part
from workers.kernels.simd import address, fma, load_first, splat, store_first, sum_lanes


@part
def norm_row(source, weight, width, eps, target):  # type: ignore[no-untyped-def]
    """`width` floats at address `source`, normalised and weighted, to `target`, which may be `source`."""
    squares = splat(np.float32(0))
    for i in range(0, width, 16):
        x = load_first(source + i * 4, min(16, width - i))
        squares = fma(x, x, squares)
    mean = sum_lanes(squares) / np.float32(width)
    factor = splat(np.float32(1) / np.float32(math.sqrt(mean + eps)))
    for i in range(0, width, 16):
        lanes = min(16, width - i)
        x = load_first(source + i * 4, lanes) * factor
        store_first(target + i * 4, x * load_first(weight + i * 4, lanes), lanes)


@kernel("void(float32[:, ::1], float32[::1], float32, float32[:, ::1])")
def _norm_rows(x, weight, eps, out):  # type: ignore[no-untyped-def]
    num_rows, width = x.shape
    for m in range(num_rows):
        norm_row(address(x) + m * width * 4, address(weight), width, eps, address(out) + m * width * 4)


def rms_norm(x: npt.NDArray[Any], weight: npt.NDArray[Any], eps: float, out: npt.NDArray[Any]) -> None:
    """out = x [M, H] / sqrt(mean of squares + eps) * weight [H]; `out` may be `x`. Raises KernelInputError."""
    num_rows, width = x.shape
    check("x", x, F32, (num_rows, width))
    check("weight", weight, F32, (width,))
    check("out", out, F32, (num_rows, width))
    _norm_rows(x, weight, eps, out)
