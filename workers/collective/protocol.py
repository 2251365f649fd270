"""The collective operations a model shard uses. Implementations: single, shm, torch (gloo or nccl)."""

from typing import Protocol, TypeVar

A = TypeVar("A", contravariant=True)


class Collective(Protocol[A]):
    """`A` is the array type of the ops in use: numpy.ndarray on the CPU kernels, torch.Tensor elsewhere.

    Sums run in rank order, so that every rank holds the same bits. `num_calls` counts collectives since the start.
    """

    rank: int
    world_size: int
    num_calls: int

    def all_reduce(self, x: A) -> None:
        """Sum `x` (contiguous float32) over ranks, in place."""
        ...

    def all_gather(self, x: A, out: A) -> None:
        """`x` [rows, cols] of each rank into `out` [world_size, rows, cols]; the shape is the same on every rank."""
        ...

    def close(self) -> None: ...
