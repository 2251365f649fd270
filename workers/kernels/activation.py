"""Elementwise steps between linear layers."""

from typing import Any

import numpy as np
import numpy.typing as npt

from workers.kernels.checks import F32, check
from workers.kernels.compile import kernel
from workers.kernels.exponential import exp
from workers.kernels.simd import address, load_first, negative_magnitude, splat, store_first, where_negative


@kernel("void(float32[:, ::1], float32[:, ::1])")
def _silu_mul(gate_up, out):  # type: ignore[no-untyped-def]
    num_rows, width = out.shape
    one = splat(np.float32(1))
    for m in range(num_rows):
        for i in range(0, width, 16):
            lanes = min(16, width - i)
            gate_at = address(gate_up) + (m * 2 * width + i) * 4
            gate, up = load_first(gate_at, lanes), load_first(gate_at + width * 4, lanes)
            # e^-|gate| never overflows: the sigmoid is 1 / (1 + e) on the right and e / (1 + e) on the left.
            decay = exp(negative_magnitude(gate))
            sigmoid = where_negative(gate, decay, one) / (one + decay)
            store_first(address(out) + (m * width + i) * 4, gate * sigmoid * up, lanes)


@kernel("void(float32[:, ::1], float32[:, ::1])")
def _add_inplace(x, y):  # type: ignore[no-untyped-def]
    for i in range(0, x.size, 16):
        lanes = min(16, x.size - i)
        at = address(x) + i * 4
        store_first(at, load_first(at, lanes) + load_first(address(y) + i * 4, lanes), lanes)


def silu_mul(gate_up: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """out [M, I] = silu(gate) * up, with gate and up the halves of gate_up [M, 2 I]. Raises KernelInputError."""
    num_rows, width = out.shape
    check("gate_up", gate_up, F32, (num_rows, 2 * width))
    check("out", out, F32, (num_rows, width))
    _silu_mul(gate_up, out)


def add_inplace(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
    """x [M, H] += y [M, H]. Raises KernelInputError."""
    num_rows, width = x.shape
    check("x", x, F32, (num_rows, width))
    check("y", y, F32, (num_rows, width))
    _add_inplace(x, y)
