"""From a `CollectiveSpec` to the collective it names. Imports torch only for the kinds and backends that need it."""

from typing import Any

from workers.collective.protocol import Collective
from workers.collective.single import SingleCollective
from workers.spec import CollectiveSpec


def open_collective(spec: CollectiveSpec, rank: int, world_size: int, backend: str) -> Collective[Any]:
    """Join the group. Takes numpy arrays when `backend` is "numba", torch tensors otherwise.

    A group of one rank needs no exchange, whatever `spec.kind` says. Returns when every rank has come.
    Raises ValueError for a spec that cannot work, CollectiveTimeout when a rank stays away.
    """
    if spec.kind not in ("single", "shm", "gloo", "nccl"):
        raise ValueError(f"collective kind {spec.kind!r} is unknown; choose single, shm, gloo or nccl")
    if world_size == 1:
        return SingleCollective()
    if spec.kind == "single":
        raise ValueError(f"collective kind 'single' joins 1 rank, the group has {world_size}; choose shm or gloo")
    if spec.kind == "shm":
        return _open_shm(spec, rank, world_size, backend)
    if spec.kind == "nccl" and backend == "numba":
        raise ValueError("collective kind 'nccl' needs a GPU backend (sdpa, flash); choose shm or gloo for numba")
    from workers.collective.torch_collective import TorchCollective  # noqa: PLC0415  # torch takes seconds to import

    return TorchCollective(spec, rank, world_size)


def _open_shm(spec: CollectiveSpec, rank: int, world_size: int, backend: str) -> Collective[Any]:
    if not spec.shm_path:
        raise ValueError("collective kind 'shm' needs shm_path, a file under /dev/shm")
    from workers.collective.shm import ShmCollective  # noqa: PLC0415  # numba takes half a second

    collective = ShmCollective(spec.shm_path, rank, world_size, timeout_s=spec.timeout_s)
    if backend == "numba":
        return collective
    from workers.collective.tensor_view import TensorView  # noqa: PLC0415

    return TensorView(collective)
