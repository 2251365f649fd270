"""The collective operations a model shard uses. Implementations: single, shm, torch (gloo or nccl)."""

from typing import Protocol, TypeVar

A_contra = TypeVar("A_contra", contravariant=True)


class Collective(Protocol[A_contra]):
    """`A_contra` is the array type of the ops in use: numpy.ndarray on the CPU kernels, torch.Tensor elsewhere.

    Sums run in rank order, so that every rank holds the same bits. `num_calls` counts collectives since the start.
    Every wait is bounded; errors are `workers.collective.errors.CollectiveError`.
    """

    rank: int
    world_size: int
    num_calls: int

    def all_reduce(self, x: A_contra) -> None:
        """Sum `x` (contiguous float32) over ranks, in place."""
        ...

    def all_gather(self, x: A_contra, out: A_contra) -> None:
        """`x` [rows, cols] of each rank into `out` [world_size, rows, cols]; the shape is the same on every rank."""
        ...

    def abort(self) -> None:
        """Make every wait of every rank end soon, where the kind can. May be called from any thread; idempotent."""
        ...

    def close(self) -> None: ...
