"""The specs of all ranks of a group on one host, from the spec of one."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import replace

from workers.collective.shm_segment import new_segment_path
from workers.ports import free_port
from workers.spec import CollectiveSpec, RankSpec


def new_collective_spec(kind: str, host: str = "127.0.0.1", timeout_s: float = 60.0) -> CollectiveSpec:
    """A collective nobody else uses: a fresh file for "shm", a free port of `host` for "gloo" and "nccl"."""
    if kind == "shm":
        path = new_segment_path(f"{os.getpid()}-{secrets.token_hex(8)}")
        return CollectiveSpec(kind=kind, shm_path=path, timeout_s=timeout_s)
    if kind in ("gloo", "nccl"):
        return CollectiveSpec(kind=kind, init_method=f"tcp://{host}:{free_port(host)}", timeout_s=timeout_s)
    return CollectiveSpec(kind=kind, timeout_s=timeout_s)


def specs_of_group(spec: RankSpec) -> tuple[RankSpec, ...]:
    """`spec` for each of its `world_size` ranks."""
    return tuple(replace(spec, rank=rank) for rank in range(spec.world_size))


def check_group(specs: Sequence[RankSpec]) -> None:
    """Raises ValueError unless `specs` are the ranks 0..N-1 of one world of N."""
    if [spec.rank for spec in specs] != list(range(len(specs))) or {spec.world_size for spec in specs} != {len(specs)}:
        found = [(spec.rank, spec.world_size) for spec in specs]
        raise ValueError(f"specs of (rank, world size) {found} are not the ranks of one group, in order")
