"""What a bench found: printed as tables, written as JSON, with all that is needed to read it a year later."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.bars import Bar, all_held
from bench.spread import Spread

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured quantity. `what` says which load, `who` which arm or which pair of arms."""

    what: str
    who: str
    unit: str
    value: Spread


@dataclass(slots=True, kw_only=True)
class Report:
    """Rows and bars of one bench run. `settings` are the numbers the run was made with."""

    title: str
    settings: dict[str, object]
    rows: list[Row] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def add(self, what: str, who: str, unit: str, value: Spread) -> None:
        self.rows.append(Row(what=what, who=who, unit=unit, value=value))

    @property
    def held(self) -> bool:
        return all_held(self.bars)

    def print(self, console: Console) -> None:
        table = Table(title=self.title, title_justify="left")
        for column in ("what", "who"):
            table.add_column(column)
        for column in ("median", "low", "high"):
            table.add_column(column, justify="right")
        table.add_column("unit")
        for row in self.rows:
            low, high = f"{row.value.low:.2f}", f"{row.value.high:.2f}"
            table.add_row(row.what, row.who, f"{row.value.median:.2f}", low, high, row.unit)
        console.print(table)
        for name, fact in self.facts.items():
            console.print(f"{name}: {fact}", highlight=False)
        for bar in self.bars:
            console.print(f"[green]held  [/green] {bar}" if bar.held else f"[red]missed[/red] {bar}", highlight=False)

    def to_json(self) -> dict[str, object]:
        return {
            "bench": self.title,
            "command": sys.argv,
            "version": version("parkade"),
            "commit": commit(),
            "machine": machine(),
            "settings": self.settings,
            "facts": self.facts,
            "rows": [{"what": row.what, "who": row.who, "unit": row.unit, **asdict(row.value)} for row in self.rows],
            "bars": [asdict(bar) | {"held": bar.held} for bar in self.bars],
            "held": self.held,
        }

    def write(self, path: Path | None) -> None:
        write_json(path, self.to_json())


def write_json(path: Path | None, facts: dict[str, object]) -> None:
    """Nothing where no file was asked for."""
    if path is not None:
        path.write_text(json.dumps(facts, indent=2) + "\n")


def exit_code(bars: Sequence[Bar], *, check: bool) -> int:
    """Without `check` a bench only reports."""
    return 1 if check and not all_held(bars) else 0


def commit() -> str:
    """The source's commit, with a plus sign when the tree differs from it; empty outside a checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def machine() -> str:
    """One line: processor, cores this process may use, memory, system, Python."""
    cores = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {cores} cores, {memory_gib:.0f} GiB, {platform.system()}, Python {platform.python_version()}"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
