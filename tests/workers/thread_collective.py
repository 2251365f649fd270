"""A collective for ranks that are threads of one process: a barrier and a list. The smallest that can be right."""

import threading
from typing import Any

import torch


class ThreadCollective:
    """Arrays or tensors; sums run in rank order. A lost peer breaks the barrier for all within 30 s."""

    def __init__(self, rank: int, slots: list[Any], barrier: threading.Barrier) -> None:
        self.rank = rank
        self.world_size = len(slots)
        self.num_calls = 0
        self._slots = slots
        self._barrier = barrier

    def all_reduce(self, x: Any) -> None:
        parts = self._share(x)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        x[...] = total

    def all_gather(self, x: Any, out: Any) -> None:
        for rank, part in enumerate(self._share(x)):
            out[rank] = part

    def _share(self, x: Any) -> list[Any]:
        self.num_calls += 1
        self._slots[self.rank] = x.clone() if isinstance(x, torch.Tensor) else x.copy()
        self._barrier.wait(30)
        parts = list(self._slots)
        self._barrier.wait(30)
        return parts

    def abort(self) -> None:
        self._barrier.abort()

    def close(self) -> None:
        self.abort()


def thread_collectives(world_size: int) -> list[ThreadCollective]:
    slots: list[Any] = [None] * world_size
    barrier = threading.Barrier(world_size)
    return [ThreadCollective(rank, slots, barrier) for rank in range(world_size)]
