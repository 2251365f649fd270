"""Whether weights, pool and arena fit into the RAM that is free now, and what would."""

from pathlib import Path

from deploy.config import format_bytes
from deploy.serve.errors import CannotServe
from deploy.serve.plan import ServerPlan, Sizes

# Measured: an own Ray with its agents takes 0.5 GB; Serve, admission and engine 0.5 GB; a rank with its libraries and
# buffers 0.3 GB.
_FIXED_BYTES = 1 << 30
_RANK_BYTES = 384 << 20


def check_memory(plan: ServerPlan, sizes: Sizes, available_bytes: int) -> None:
    """Raises `CannotServe` that says what would fit."""
    overhead = _FIXED_BYTES + plan.tensor_parallel_size * _RANK_BYTES
    pool = plan.num_pages * sizes.page_bytes
    needed = sizes.weight_bytes + pool + sizes.arena_bytes + overhead
    if needed <= available_bytes:
        return
    parts = (
        f"weights {format_bytes(sizes.weight_bytes)} + KV pool of {plan.pool_tokens:,} tokens {format_bytes(pool)} + "
        f"host RAM for parking {format_bytes(sizes.arena_bytes)} + processes {format_bytes(overhead)} = "
        f"{format_bytes(needed)}, but {format_bytes(available_bytes)} are free"
    )
    raise CannotServe(f"not enough memory: {parts}; {_what_fits(plan, sizes, available_bytes - overhead)}")


def _what_fits(plan: ServerPlan, sizes: Sizes, usable_bytes: int) -> str:
    left = usable_bytes - sizes.weight_bytes
    pages = (left - sizes.arena_bytes) // sizes.page_bytes
    if pages > 0:
        return f"--kv-pool-tokens {pages * plan.page_size} would fit"
    pages = left // 2 // sizes.page_bytes
    if pages > 0:
        half_mib = pages * sizes.page_bytes >> 20
        return f"--kv-pool-tokens {pages * plan.page_size} with --host-ram {half_mib}MiB would fit"
    return f"not even the weights fit into {format_bytes(max(usable_bytes, 0))}"


def available_memory(root: Path = Path("/")) -> int:
    """Bytes this process may still use: the machine's or, if that is less, its control group's. `root` is for tests."""
    free = _meminfo(root / "proc/meminfo")
    for limit, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int((root / limit).read_text()) - int((root / used).read_text()))
        except (OSError, ValueError):  # no such control group, or "max"
            continue
    return max(free, 0)


def _meminfo(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise CannotServe(f"{path} does not tell how much memory is available")
