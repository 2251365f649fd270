"""What a server shows of itself from outside: its books, its shared memory, its processes. Linux only."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.processes import PROC, descendants, processes, resident_mib

SHM = Path("/dev/shm")
ARENA_PREFIX = "parkade-arena-"
BLOCK_BYTES = 512
TIMEOUT_S = 60.0
# A sample of ours on Ray's metrics page, and one of its labels.
_METRIC = re.compile(r"^ray_(parkade_[a-z_]+)(?:\{([^}]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# Labels of ours; Ray adds others that tell its processes apart.
_OWN_LABELS = ("group", "state", "tier")
_TASKS, _PARKS = "parkade_tasks", "parkade_parks_total"
_RESTING = ("parkade_requests", "parkade_queued_tokens", "parkade_arena_used_bytes", "parkade_pages{group=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """`books`: problems of /health and /v1/requests in words, none at rest. `arena_bytes` have memory in /dev/shm.

    `metrics` are the gauges of the metrics page that count what lives, `tasks` those of asyncio tasks by process, and
    `explicit_parks` all parks by order so far, from there too; the page is some seconds behind.
    """

    books: tuple[str, ...]
    arena_bytes: int
    num_arenas: int
    num_fds: int
    num_threads: int
    resident_mib: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    tasks: Mapping[str, float] = field(default_factory=dict)
    explicit_parks: float = 0.0


def book_problems(health: Mapping[str, Any], living: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What is not as in a server that nobody uses."""
    problems = [f"request {row['id']} is {row['state']}" for row in living]
    for name in ("queued_requests", "queued_tokens"):
        if health.get(name):
            problems.append(f"{name} is {health[name]}")
    for group in health.get("groups", ()):
        for free, total in (("pages_free", "pages_total"), ("arena_free", "arena_total"), ("seats_free", "seats")):
            if group[free] != group[total]:
                problems.append(f"{group['group_id']}: {free} is {group[free]} of {group[total]}")
        for name in ("parked", "shortfall"):
            if group[name]:
                problems.append(f"{group['group_id']}: {name} is {group[name]}")
        if group["commands_given"] != group["commands_done"]:
            problems.append(f"{group['group_id']}: {group['commands_done']} of {group['commands_given']} commands done")
    return tuple(problems)


async def read_gauges(client: httpx.AsyncClient, url: str, pid: int) -> Gauges:
    """Raises `httpx.HTTPError`. `pid` is the server's first process."""
    health = (await client.get(f"{url}/health", timeout=TIMEOUT_S)).raise_for_status().json()
    living = (await client.get(f"{url}/v1/requests", timeout=TIMEOUT_S)).raise_for_status().json()["data"]
    answer = await client.get(f"{url}/metrics", timeout=TIMEOUT_S)
    page = answer.text if answer.status_code == httpx.codes.OK else ""
    pids = [pid, *(process.pid for process in descendants(pid, processes()))]
    arenas = arena_files()
    return Gauges(
        books=book_problems(health, living),
        arena_bytes=sum(path.stat().st_blocks * BLOCK_BYTES for path in arenas),
        num_arenas=len(arenas),
        num_fds=sum(count_fds(each) for each in pids),
        num_threads=sum(count_threads(each) for each in pids),
        resident_mib=sum(resident(each) for each in pids),
        metrics=read_metrics(page),
        tasks=read_tasks(page),
        explicit_parks=read_explicit_parks(page),
    )


def _samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name without Ray's prefix, labels and value of each sample of ours."""
    for name, labels, value in _METRIC.findall(page):
        yield name, dict(_LABEL.findall(labels)), float(value)


def read_metrics(page: str) -> dict[str, float]:
    """Gauges by name and labels of ours, summed over the processes that tell them."""
    gauges: dict[str, float] = {}
    for name, labels, value in _samples(page):
        told = [f"{label}={text}" for label, text in labels.items() if label in _OWN_LABELS]
        full = f"{name}{{{','.join(told)}}}" if told else name
        if full.startswith(_RESTING):
            gauges[full] = gauges.get(full, 0.0) + value
    return gauges


def read_tasks(page: str) -> dict[str, float]:
    """Live asyncio tasks by process; of several gateways their sum."""
    tasks: dict[str, float] = {}
    for name, labels, value in _samples(page):
        if name == _TASKS:
            tasks[labels["process"]] = tasks.get(labels["process"], 0.0) + value
    return tasks


def read_explicit_parks(page: str) -> float:
    """Since the server started, of all tiers and modes."""
    return sum(value for name, labels, value in _samples(page) if name == _PARKS and labels["reason"] == "explicit")


def metric_problems(metrics: Mapping[str, float]) -> list[str]:
    """Gauges that are not as in a server that nobody uses: all are 0 then, but for the free pages."""
    return [f"{name} is {value:g}" for name, value in metrics.items() if value and "state=free" not in name]


def arena_files(folder: Path = SHM) -> list[Path]:
    return sorted(folder.glob(f"{ARENA_PREFIX}*"))


def count_fds(pid: int, proc: Path = PROC) -> int:
    """0 for a process that is gone."""
    try:
        return sum(1 for _ in (proc / str(pid) / "fd").iterdir())
    except OSError:
        return 0


def count_threads(pid: int, proc: Path = PROC) -> int:
    try:
        return sum(1 for _ in (proc / str(pid) / "task").iterdir())
    except OSError:
        return 0


def resident(pid: int, proc: Path = PROC) -> float:
    """MiB; 0 for a process that is gone."""
    try:
        return resident_mib(pid, proc)
    except (OSError, ValueError):
        return 0.0
