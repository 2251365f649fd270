"""What commands print of a running server, as rich renderables and plain lines. Values are those of `admin.plain`."""

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.config import format_seconds

Plain = dict[str, Any]

_ID_CHARS = 18
_BAR_CHARS = 30
_STYLES = {"resident": "green", "parked": "yellow", "parking": "magenta", "restoring": "cyan", "queued": "dim"}
_COLUMNS = (
    ("SLOT", "right"),
    ("ID", "left"),
    ("STATE", "left"),
    ("TIER", "right"),
    ("TOKENS", "right"),
    ("PAGES", "right"),
    ("RAM", "right"),
    ("PARKS", "right"),
    ("RECOMP", "right"),
    ("WAITED", "right"),
    ("AGE", "right"),
)


def request_table(rows: Sequence[Plain], *, whole_ids: bool = False) -> Table:
    """A row a request. Ids are cut to a length at which they still differ."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in _COLUMNS:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True, overflow="ellipsis")
    shown = [row["id"] for row in rows] if whole_ids else short_ids([row["id"] for row in rows])
    for row, request_id in zip(rows, shown, strict=True):
        table.add_row(
            str(row["slot"]),
            Text(request_id),
            Text(state_text(row), style=_STYLES.get(row["state"], "")),
            tier_text(row),
            f"{row['tokens']:,}",
            f"{row['pages']:,}",
            f"{row['arena_pages']:,}",
            str(row["parks"]),
            str(row["recomputes"]),
            format_seconds(row["waited_seconds"]),
            format_seconds(row["age_seconds"]),
        )
    return table


def short_ids(ids: Sequence[str]) -> list[str]:
    """All cut to one length, the shortest from 18 characters on at which no two are alike."""
    length, longest = _ID_CHARS, max(map(len, ids), default=0)
    while length < longest and len({request_id[:length] for request_id in ids}) < len(set(ids)):
        length += 1
    return [request_id[:length] for request_id in ids]


def state_text(row: Plain) -> str:
    """`parked, held 42 s`: with the time left, if the hold has a deadline."""
    words = [row["state"]]
    if row["held"]:
        left = row["deadline_s"]
        words.append("held" if left is None else f"held {format_seconds(left)}, then {row['then']}")
    if row["cancelling"]:
        words.append("ending")
    return ", ".join(words)


def tier_text(row: Plain) -> str:
    """The priority, and what parks have made of it."""
    asked, effective = row["priority"], row["effective_priority"]
    return str(asked) if asked == effective else f"{asked} → {effective}"


def request_line(row: Plain) -> str:
    """One request in a line, after an order."""
    pages = f"{row['pages']:,} pages in the pool, {row['arena_pages']:,} in host RAM"
    return f"{row['id']}: {state_text(row)}; priority {tier_text(row)}; {row['tokens']:,} tokens; {pages}"


def status_view(status: Plain) -> RenderableType:
    """Pools and arenas as bars, and how many requests are in which state."""
    bars = Table.grid(padding=(0, 2))
    for group in status["groups"]:
        bars.add_row(group["id"], "pool", *_bar(group["pages_total"], group["pages_free"], "pages"))
        bars.add_row("", "host RAM", *_bar(group["arena_total"], group["arena_free"], "pages"))
        bars.add_row("", "seats", *_bar(group["seats"], group["seats_free"], ""))
    return Group(bars, Text(_counts_line(status)))


def _bar(total: int, free: int, unit: str) -> tuple[RenderableType, str]:
    used = total - free
    if total == 0:
        return Text("none"), ""
    style = "red" if used > 0.9 * total else "green"
    bar = ProgressBar(total=total, completed=used, width=_BAR_CHARS, complete_style=style, finished_style=style)
    return bar, f"{used:,} of {total:,} {unit}".rstrip()


def _counts_line(status: Plain) -> str:
    counts = ", ".join(f"{number} {state}" for state, number in sorted(status["by_state"].items()))
    words = [f"requests: {counts or 'none'}"]
    if status["queued_requests"]:
        words.append(f"waiting: {status['queued_requests']:,} with {status['queued_tokens']:,} prompt tokens")
    words += [f"{group['id']} lacks {group['shortfall']:,} pages" for group in status["groups"] if group["shortfall"]]
    words += [word for word in ("draining", "exhausted") if status[word]]
    return "; ".join(words)


def event_line(event: Plain) -> str:
    """`12:03:04.123  parked  fbd9144a  group-0  pages=51 reason=pressure`, in local time."""
    if event["kind"] == "lost":
        return f"-- {event['facts']['events']:,} events are lost: they came faster than they were read --"
    seconds = event["unix_s"]
    clock = time.strftime("%H:%M:%S", time.localtime(seconds)) + f"{seconds % 1:.3f}"[1:]
    where = [word for word in (event["request_id"], event["group"]) if word]
    facts = " ".join(f"{name}={_fact(value)}" for name, value in event["facts"].items() if value != "")
    return "  ".join([clock, f"{event['kind']:<11}", *where, facts]).rstrip()


def _fact(value: str | float) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f'"{text}"' if " " in text else text
