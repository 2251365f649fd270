"""CPU tensors through a collective of numpy arrays, without a copy."""

from typing import Any

import torch

from workers.collective.protocol import Collective


class TensorView:
    """The same collective, for torch tensors in host memory."""

    def __init__(self, arrays: Collective[Any]) -> None:
        self._arrays = arrays
        self.rank = arrays.rank
        self.world_size = arrays.world_size

    @property
    def num_calls(self) -> int:
        return self._arrays.num_calls

    @num_calls.setter
    def num_calls(self, value: int) -> None:
        self._arrays.num_calls = value

    def all_reduce(self, x: torch.Tensor) -> None:
        self._arrays.all_reduce(x.detach().numpy())

    def all_gather(self, x: torch.Tensor, out: torch.Tensor) -> None:
        self._arrays.all_gather(x.detach().numpy(), out.detach().numpy())

    def abort(self) -> None:
        self._arrays.abort()

    def close(self) -> None:
        self._arrays.close()
