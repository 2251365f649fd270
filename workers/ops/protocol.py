"""The operations a model shard is written in. `A` is the array type (numpy or torch), `L` a packed linear layer.

Arrays are row-major with one row a token; activations are float32. `out` arguments are written whole and never alias an
input. No operation may let a row's result depend on other rows of the batch beyond what it is for (attention reads the
row's own sequence).

Shape suffixes: M rows of the step, R sampled rows, H hidden, I the rank's MLP columns, N and K a linear's outputs and
inputs, V the rank's vocabulary.
"""

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

A = TypeVar("A")
L = TypeVar("L")

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


class Ops(Protocol[A, L]):
    """Everything outside attention. One instance serves one rank; it keeps no state between calls that changes
    results.
    """

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None) -> L:
        """Take a linear's weight [N, K] and bias [N] in the layout the kernel wants. The arguments are not kept."""
        ...

    def table(self, weight: torch.Tensor) -> A:
        """Take an embedding table [V, H]."""
        ...

    def vector(self, weight: torch.Tensor) -> A:
        """Take a norm's weight as float32."""
        ...

    def buffer(self, num_rows: int, num_columns: int) -> A:
        """A new float32 array."""
        ...

    def rows(self, x: A, num_rows: int) -> A:
        """The first rows of `x`, contiguous, sharing its memory."""
        ...

    def embed(self, tokens: A, table: A, first_token: int, out: A) -> None:
        """Rows of the table into out [M, H]; tokens outside [first_token, first_token + V) become zeros."""
        ...

    def rms_norm(self, x: A, weight: A, eps: float, out: A) -> None: ...

    def linear(self, x: A, packed: L, out: A) -> None:
        """out [M, N] = x [M, K] times the weight, plus the bias."""
        ...

    def silu_mul(self, gate_up: A, out: A) -> None:
        """out [M, I] = silu(gate) * up, of [M, 2I] with the gate first."""
        ...

    def add(self, x: A, y: A) -> None:
        """x += y."""
        ...

    def take_rows(self, x: A, row_ids: A, out: A) -> None: ...

    def argmax_rows(self, x: A) -> tuple[Float32, Int64]:
        """Each row's largest value and its column, on the host; the first column wins a tie."""
        ...

    def to_host(self, x: A) -> Float32:
        """The values as a numpy array; it may share memory with `x`."""
        ...

    def from_host(self, x: Float32) -> A:
        """A numpy array as this backend's array; it may share memory."""
        ...
