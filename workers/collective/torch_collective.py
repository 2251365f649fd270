"""Collectives through torch.distributed: gloo across hosts and as the reference, nccl between GPUs.

gloo: an all-reduce is one all_gather and a sum in rank order, so the bits are those of the shared-memory collective.
nccl: its own all_reduce; the same bits on every rank and in every run of one topology, but not summed in rank order.
Takes torch tensors; numpy arrays too, which are wrapped without a copy.
"""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from workers.collective.errors import CollectiveAborted, CollectiveTimeout
from workers.spec import CollectiveSpec


class TorchCollective:
    """One rank's end of the process's default torch.distributed group, which it makes and destroys."""

    def __init__(self, spec: CollectiveSpec, rank: int, world_size: int) -> None:
        """Returns when every rank has come. Raises CollectiveTimeout, CollectiveAborted."""
        self.rank = rank
        self.world_size = world_size
        self.num_calls = 0
        self._kind = spec.kind
        self._timeout_s = spec.timeout_s
        self._ended = ""
        self._gathered: dict[tuple[int, ...], torch.Tensor] = {}
        try:
            dist.init_process_group(
                spec.kind,
                init_method=spec.init_method,
                rank=rank,
                world_size=world_size,
                timeout=timedelta(seconds=spec.timeout_s),
            )
        except dist.DistStoreError as error:
            raise CollectiveTimeout(what="all ranks to join", rank=rank, timeout_s=spec.timeout_s) from error

    def all_reduce(self, x: Any) -> None:
        """Sum `x` (contiguous float32) over ranks, in place."""
        tensor = _as_tensor(x)
        if self._kind == "nccl":
            self._run(dist.all_reduce, tensor)
            return
        gathered = self._buffer(tensor)
        self._run(dist.all_gather, list(gathered.unbind(0)), tensor)
        torch.add(gathered[0], gathered[1], out=tensor)
        for peer in range(2, self.world_size):
            tensor.add_(gathered[peer])

    def all_gather(self, x: Any, out: Any) -> None:
        """`x` of each rank into `out` [world_size, *x.shape]."""
        self._run(dist.all_gather, list(_as_tensor(out).unbind(0)), _as_tensor(x))

    def abort(self) -> None:
        """Refuse further calls. A wait that has begun ends by its timeout or with its process."""
        self._ended = self._ended or "aborted"

    def close(self) -> None:
        """Destroy the group. Idempotent."""
        if dist.is_initialized() and self._ended != "closed":
            dist.destroy_process_group()
        self._ended = "closed"

    def _buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        shape = tuple(tensor.shape)
        if shape not in self._gathered:
            if len(self._gathered) >= 64:  # the row counts of steps vary: keep a bounded number of shapes
                self._gathered.clear()
            self._gathered[shape] = torch.empty((self.world_size, *shape), dtype=tensor.dtype, device=tensor.device)
        return self._gathered[shape]

    def _run(self, operation: Any, *args: Any) -> None:
        if self._ended:
            raise CollectiveAborted(rank=self.rank, reason=self._ended)
        self.num_calls += 1
        try:
            operation(*args)
        except (RuntimeError, dist.DistBackendError) as error:
            self._ended = str(error).splitlines()[0]
            if "imed out" in str(error):
                raise CollectiveTimeout(what="its peers", rank=self.rank, timeout_s=self._timeout_s) from error
            raise CollectiveAborted(rank=self.rank, reason=self._ended) from error


def _as_tensor(x: Any) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.from_numpy(x)
