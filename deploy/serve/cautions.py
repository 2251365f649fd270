"""What a server starts with all the same, but whoever starts it should know. One line each."""

import ipaddress
from pathlib import Path

from deploy.admin.token import may_be_read_by_others
from deploy.config import format_bytes
from deploy.serve.plan import ServerPlan, Sizes
from workers.arena.shared_file import RESERVE_BYTES, SHM_FOLDER, spare_bytes

_MIB = 1 << 20


def cautions(plan: ServerPlan, sizes: Sizes, shared_memory_bytes: int) -> list[str]:
    """`shared_memory_bytes` may still be taken from /dev/shm."""
    admin = plan.admin
    found = []
    if not is_loopback(plan.host) and plan.api_key_file is None:
        found.append(
            f"whoever reaches {plan.host}:{plan.port} may use the model and steer every request; "
            "give --api-key-file FILE"
        )
    if not is_loopback(admin.host) and admin.tls_cert is None:
        found.append(
            f"the admin token crosses the network of {admin.host} in plain text; "
            "give --admin-tls-cert and --admin-tls-key, or leave --admin-host at 127.0.0.1"
        )
    for what, file in (("admin token", admin.token_file), ("API keys", plan.api_key_file)):
        if file is not None and may_be_read_by_others(Path(file)):
            found.append(f"other users of this machine may read the {what} in {file}; chmod 600 closes it")
    if sizes.arena_bytes > shared_memory_bytes:
        found.append(_small_shared_memory(plan, sizes, shared_memory_bytes))
    return found


def available_shared_memory(folder: Path = SHM_FOLDER) -> int:
    """Bytes that arenas may still take there; 0 where there is no such folder."""
    try:
        return spare_bytes(folder)
    except OSError:
        return 0


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`; a name other than localhost may be anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _small_shared_memory(plan: ServerPlan, sizes: Sizes, shared_memory_bytes: int) -> str:
    beyond = "parks beyond it are recomputed" if plan.recompute else "parks beyond it fail, and new requests get 429"
    mib = sizes.arena_bytes // _MIB + RESERVE_BYTES // _MIB + 64
    return (
        f"/dev/shm has {format_bytes(shared_memory_bytes)} to spare, less than the {format_bytes(sizes.arena_bytes)} "
        f"of --host-ram: {beyond}; "
        f"enlarge it (`mount -o remount,size={mib}M /dev/shm`, in Docker `--shm-size {mib}m`)"
    )
