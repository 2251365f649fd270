"""Every metric of Parkade: its kind, unit, labels, and which process tells it. Ray's endpoint shows each as
`ray_NAME`, counters with `_total` behind it.

`tier` is the priority a request was given, without what parks and age have earned it.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Instrument:
    """`bounds`: upper bounds of a histogram's buckets."""

    kind: Kind
    name: str
    labels: tuple[str, ...]
    description: str
    bounds: tuple[float, ...] = ()


_WAIT_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
_COPY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_STEP_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

ADMISSION_INSTRUMENTS = (
    Instrument(
        Kind.GAUGE,
        "parkade_requests",
        ("state", "tier"),
        "Living requests. state: queued, resident, parking, parked, restoring; held: queued or parked by an order.",
    ),
    Instrument(
        Kind.GAUGE, "parkade_queued_tokens", (), "Prompt tokens of the requests in the queue, where held ones are not."
    ),
    Instrument(
        Kind.GAUGE,
        "parkade_pages",
        ("group", "state"),
        "KV pages on the device, of one rank (all have the same). state: free, used.",
    ),
    Instrument(
        Kind.GAUGE, "parkade_arena_used_bytes", ("group",), "Host RAM that holds parked pages, all ranks of the group."
    ),
    Instrument(
        Kind.GAUGE, "parkade_arena_budget_bytes", ("group",), "Host RAM that parked pages may take, all its ranks."
    ),
    Instrument(
        Kind.HISTOGRAM,
        "parkade_queue_wait_seconds",
        ("tier",),
        "From a request's arrival to its admission; observed when it is admitted.",
        _WAIT_BOUNDS_S,
    ),
    Instrument(
        Kind.HISTOGRAM,
        "parkade_parked_wait_seconds",
        ("tier", "cause"),
        "From the moment a request was parked to its restore. cause: held (by an order, for all or part), scheduler.",
        _WAIT_BOUNDS_S,
    ),
    Instrument(
        Kind.COUNTER,
        "parkade_parks",
        ("tier", "reason", "mode"),
        "Parks that freed their pages. reason: pressure, seat, explicit. mode: copy (to host RAM), recompute.",
    ),
    Instrument(Kind.COUNTER, "parkade_failed_parks", ("tier",), "Parks that failed: the victim ran on."),
    Instrument(
        Kind.COUNTER, "parkade_restores", ("tier", "mode"), "Returns from park. mode: copy (from host RAM), recompute."
    ),
    Instrument(
        Kind.HISTOGRAM,
        "parkade_copy_seconds",
        ("group", "direction"),
        "One copy of a request's pages, its slowest rank. direction: out (to host RAM), in.",
        _COPY_BOUNDS_S,
    ),
    Instrument(Kind.COUNTER, "parkade_copy_bytes", ("group", "direction"), "Bytes copied, all ranks together."),
    Instrument(
        Kind.COUNTER,
        "parkade_finished_requests",
        ("tier", "reason"),
        "Requests that ended. reason: stop, length, cancelled, error.",
    ),
    Instrument(
        Kind.COUNTER,
        "parkade_refusals",
        ("code",),
        "Requests that admission refused. code: never_fits, too_many_choices, queue_full, capacity_exhausted, "
        "draining, duplicate_request, no_group.",
    ),
)

ENGINE_INSTRUMENTS = (
    Instrument(Kind.HISTOGRAM, "parkade_step_seconds", ("group",), "One step, its slowest rank.", _STEP_BOUNDS_S),
    Instrument(Kind.COUNTER, "parkade_prompt_tokens", ("group",), "Prompt positions computed for the first time."),
    Instrument(
        Kind.COUNTER, "parkade_recomputed_tokens", ("group",), "Positions computed again, after a park without a copy."
    ),
    Instrument(Kind.COUNTER, "parkade_generated_tokens", ("group",), "Tokens generated."),
    Instrument(
        Kind.COUNTER,
        "parkade_copies",
        ("group", "outcome"),
        "Copies out and in that have ended. outcome: done, failed, corrupt (a wrong checksum).",
    ),
)

# Every process tells its own; the actors of admission and of engines tell it beside what stands above.
TASKS = Instrument(
    Kind.GAUGE,
    "parkade_tasks",
    ("process",),
    "Live asyncio tasks, counted once a second. process: gateway, admission, engine GROUP. Idle, it stays where it is.",
)

GATEWAY_INSTRUMENTS = (
    TASKS,
    Instrument(
        Kind.HISTOGRAM,
        "parkade_time_to_first_token_seconds",
        ("tier",),
        "From the arrival of a request at the gateway to its first token.",
        _WAIT_BOUNDS_S,
    ),
)
