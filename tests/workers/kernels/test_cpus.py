"""The same bits whichever vector width the CPU has."""

import hashlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from llvmlite import binding

from workers.kernels.activation import silu_mul
from workers.kernels.attention import attend
from workers.kernels.compile import native_lanes
from workers.kernels.linear import linear, pack_linear
from workers.kernels.norm import rms_norm

FEATURES = binding.get_host_cpu_features()


def bf16(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def digest() -> str:
    """Of what every kernel that sums makes of fixed inputs."""
    rng, results = np.random.default_rng(0), []

    def normal(*shape: int) -> npt.NDArray[Any]:
        return rng.standard_normal(shape).astype(np.float32)

    for num_in, num_out in ((576, 100), (65, 96)):
        weight, x = normal(num_out, num_in), normal(13, num_in)
        for stored in (weight, bf16(weight)):
            results.append(np.empty((13, num_out), np.float32))
            linear(x, pack_linear(stored), results[-1])
    for heads, kv_heads, dim, size in ((9, 3, 64, 16), (2, 1, 80, 32)):
        pool, table = normal(12, 1, 2 * kv_heads * size * dim), rng.permutation(12)[None, :9].astype(np.int32)
        q, rows, positions = normal(140, heads, dim), np.zeros(140, np.int32), np.arange(140, dtype=np.int32)
        for stored in (pool, bf16(pool)):
            results.append(np.empty((140, heads * dim), np.float32))
            attend(q, stored, 0, rows, positions, table, kv_heads, size, dim**-0.5, results[-1])
    x = normal(5, 578)
    results += [np.empty_like(x), np.empty((5, 289), np.float32)]
    rms_norm(x, x[0].copy(), 1e-6, results[-2])
    silu_mul(x * 9, results[-1])
    return hashlib.sha256(b"".join(result.tobytes() for result in results)).hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(not (FEATURES.get("avx512f") and FEATURES.get("fma")), reason="needs a CPU with AVX-512")
def test_avx2_gives_the_bits_of_avx512() -> None:
    environment = os.environ | {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
    command = [sys.executable, __file__]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert native_lanes() == 16
    assert printed.split() == ["8", digest()]


if __name__ == "__main__":
    sys.stdout.write(f"{native_lanes()} {digest()}\n")
