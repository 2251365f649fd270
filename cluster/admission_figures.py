"""The figures of admission: of events as they happen, and of its state once a second. Pure; names and labels are those
of `ADMISSION_INSTRUMENTS`."""

import re
from collections import Counter
from collections.abc import Mapping

from cluster.readings import Reading, tier_label
from cluster.watch import WatchEvent
from scheduler.admission import AdmissionRefused, AdmissionStatus, GroupRow, RequestRow
from scheduler.messages import ParkMode

_HOLDABLE = ("queued", "parked")


def readings_of(event: WatchEvent) -> list[Reading]:
    """What one event adds."""
    facts = event.facts
    tier = tier_label(int(facts.get("tier", 0)))
    match event.kind:
        case "admitted":
            return [Reading("parkade_queue_wait_seconds", float(facts["waited_s"]), (tier,))]
        case "parked":
            parks = Reading("parkade_parks", 1, (tier, str(facts["reason"]), str(facts["mode"])))
            return [parks, *_copy(event, "out")]
        case "park_failed":
            return [Reading("parkade_failed_parks", 1, (tier,))]
        case "restored":
            cause = "held" if facts["was_held"] else "scheduler"
            return [
                Reading("parkade_restores", 1, (tier, str(facts["mode"]))),
                Reading("parkade_parked_wait_seconds", float(facts["parked_s"]), (tier, cause)),
                *_copy(event, "in"),
            ]
        case "finished":
            return [Reading("parkade_finished_requests", 1, (tier, str(facts["reason"])))]
        case _:
            return []


def refusal_reading(refusal: AdmissionRefused) -> Reading:
    """`QueueFull` has the code "queue_full"."""
    return Reading("parkade_refusals", 1, (re.sub(r"(?<!^)(?=[A-Z])", "_", type(refusal).__name__).lower(),))


class AdmissionGauges:
    """Remembers which gauges it has told, so that what is there no more is told as 0."""

    def __init__(self) -> None:
        self._told: set[tuple[str, tuple[str, ...]]] = set()

    def read(self, status: AdmissionStatus, page_bytes: Mapping[str, int]) -> list[Reading]:
        """`page_bytes` by group: one page on all its ranks; an arena whose pages have no size is not told."""
        values: dict[tuple[str, tuple[str, ...]], float] = {("parkade_queued_tokens", ()): status.queued_tokens}
        for state, count in Counter((_state(row), tier_label(row.priority)) for row in status.requests).items():
            values["parkade_requests", state] = count
        for group in status.groups:
            values |= _group_values(group, page_bytes.get(group.group_id, 0))
        gone = self._told - values.keys()
        self._told = set(values)
        values |= dict.fromkeys(gone, 0)
        return [Reading(name, value, labels) for (name, labels), value in values.items()]


def _group_values(group: GroupRow, page_bytes: int) -> dict[tuple[str, tuple[str, ...]], float]:
    name = group.group_id
    values: dict[tuple[str, tuple[str, ...]], float] = {
        ("parkade_pages", (name, "free")): group.pages_free,
        ("parkade_pages", (name, "used")): group.pages_total - group.pages_free,
    }
    if page_bytes and group.arena_total is not None and group.arena_free is not None:
        values["parkade_arena_used_bytes", (name,)] = (group.arena_total - group.arena_free) * page_bytes
        values["parkade_arena_budget_bytes", (name,)] = group.arena_total * page_bytes
    return values


def _copy(event: WatchEvent, direction: str) -> list[Reading]:
    if event.facts["mode"] != ParkMode.COPY or not event.facts["bytes"]:
        return []
    labels = (event.group_id, direction)
    return [
        Reading("parkade_copy_seconds", float(event.facts["seconds"]), labels),
        Reading("parkade_copy_bytes", float(event.facts["bytes"]), labels),
    ]


def _state(row: RequestRow) -> str:
    return "held" if row.held and row.state in _HOLDABLE else row.state
