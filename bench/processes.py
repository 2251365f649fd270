"""Processes of this machine as /proc shows them: who descends from whom, and how much is resident. Linux only."""

from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    parent: int
    command: str


def processes(proc: Path = PROC) -> list[Process]:
    """Every process that can be read; one that ends meanwhile is left out."""
    found = []
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                # The second field is the name in brackets and may hold spaces: count after the last one.
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            found.append(Process(pid=int(folder.name), parent=parent, command=command))
    return found


def descendants(pid: int, among: list[Process]) -> list[Process]:
    """Children, their children and so on, in order of process id."""
    family = {pid}
    while grown := {process.pid for process in among if process.parent in family} - family:
        family |= grown
    return sorted((process for process in among if process.pid in family - {pid}), key=lambda process: process.pid)


def resident_mib(pid: int, proc: Path = PROC) -> float:
    """What lies in RAM for this process, shared pages included: the rollup of its mappings."""
    for line in (proc / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} shows no resident size")
