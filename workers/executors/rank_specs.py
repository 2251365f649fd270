"""The specs of all ranks of a group on one host, from the spec of one."""

import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from workers.collective.shm_segment import new_segment_path
from workers.spec import CollectiveSpec, RankSpec

_FIXED_PORTS = (20_000, 32_768)  # above those of Ray's workers, below those that Linux hands out
_PORT_TRIES = 20


def new_collective_spec(kind: str, host: str = "127.0.0.1", timeout_s: float = 60.0) -> CollectiveSpec:
    """A collective nobody else uses: a fresh file for "shm", a free port of `host` for "gloo" and "nccl"."""
    if kind == "shm":
        path = new_segment_path(f"{os.getpid()}-{secrets.token_hex(8)}")
        return CollectiveSpec(kind=kind, shm_path=path, timeout_s=timeout_s)
    if kind in ("gloo", "nccl"):
        return CollectiveSpec(kind=kind, init_method=f"tcp://{host}:{_free_port(host)}", timeout_s=timeout_s)
    return CollectiveSpec(kind=kind, timeout_s=timeout_s)


def specs_of_group(spec: RankSpec) -> tuple[RankSpec, ...]:
    """`spec` for each of its `world_size` ranks."""
    return tuple(replace(spec, rank=rank) for rank in range(spec.world_size))


def check_group(specs: Sequence[RankSpec]) -> None:
    """Raises ValueError unless `specs` are the ranks 0..N-1 of one world of N."""
    if [spec.rank for spec in specs] != list(range(len(specs))) or {spec.world_size for spec in specs} != {len(specs)}:
        found = [(spec.rank, spec.world_size) for spec in specs]
        raise ValueError(f"specs of (rank, world size) {found} are not the ranks of one group, in order")


def _free_port(host: str) -> int:
    """One that nobody listens on, nor gets by chance before rank 0 does: the system hands out others to who asks for 0.

    Where all that were tried are taken, one that the system hands out.
    """
    first, last = _FIXED_PORTS
    tried = [first + secrets.randbelow(last - first) for _ in range(_PORT_TRIES)]
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        for port in (*tried, 0):
            with suppress(OSError):
                probe.bind((host, port))
                break
        return int(probe.getsockname()[1])
