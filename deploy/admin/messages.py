"""From what admission says to the messages of `admin.proto`. Whatever it says can be told: a number that its field
cannot hold is told as the nearest one that it can.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from cluster.watch import WatchBatch, WatchEvent
from deploy.admin.v1 import admin_pb2
from scheduler.admission import HoldEnd, RequestRow

STATES = {
    "queued": admin_pb2.STATE_QUEUED,
    "resident": admin_pb2.STATE_RESIDENT,
    "parking": admin_pb2.STATE_PARKING,
    "parked": admin_pb2.STATE_PARKED,
    "restoring": admin_pb2.STATE_RESTORING,
}
STATE_NAMES: Mapping[int, str] = {number: name for name, number in STATES.items()}
HOLD_ENDS = {HoldEnd.UNPARK: admin_pb2.HOLD_END_UNPARK, HoldEnd.CANCEL: admin_pb2.HOLD_END_CANCEL}

_THEN = {end.value: number for end, number in HOLD_ENDS.items()}
_BOUNDS = {
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_SINT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT64: (-(2**63), 2**63 - 1),
}

_SAME = (
    "request_id",
    "slot",
    "owner",
    "held",
    "hold_left_s",
    "cancelling",
    "priority",
    "effective_priority",
    "prompt_tokens",
    "tokens",
    "n",
    "seats",
    "pages",
    "arena_pages",
    "parks",
    "recomputes",
    "passes",
    "waited_s",
    "parked_s",
    "age_s",
)
_SAME_OF_GROUP = (
    "group_id",
    "pages_total",
    "pages_free",
    "pages_unclaimed",
    "seats",
    "seats_free",
    "parked",
    "shortfall",
    "exhausted",
)


def request_message(row: RequestRow) -> admin_pb2.Request:
    same = _fitting(admin_pb2.Request, {name: getattr(row, name) for name in _SAME})
    return admin_pb2.Request(
        **same,
        state=STATES.get(row.state, admin_pb2.STATE_UNSPECIFIED),
        then=None if row.then is None else _THEN.get(row.then, admin_pb2.HOLD_END_UNSPECIFIED),
        group_id=row.group_id or "",
    )


def status_message(status: Mapping[str, Any]) -> admin_pb2.GetStatusResponse:
    """`status` is `AdmissionStatus` as a dict."""
    return admin_pb2.GetStatusResponse(
        draining=status["draining"],
        exhausted=status["exhausted"],
        by_state=_counts(status["by_state"]),
        tiers=[
            admin_pb2.Tier(**_fitting(admin_pb2.Tier, {"effective_priority": priority}), by_state=_counts(states))
            for priority, states in sorted(status["by_tier"].items(), reverse=True)
        ],
        **_fitting(
            admin_pb2.GetStatusResponse,
            {name: status[name] for name in ("queued_requests", "queued_tokens")},
        ),
        groups=[_group_message(row) for row in status["groups"]],
    )


def _group_message(row: Mapping[str, Any]) -> admin_pb2.Group:
    same = {name: row[name] for name in _SAME_OF_GROUP}
    arena = {name: row[name] or 0 for name in ("arena_total", "arena_free")}
    return admin_pb2.Group(
        **_fitting(admin_pb2.Group, same | arena),
        survivor_id=row["survivor_id"] or "",
    )


def watch_message(batch: WatchBatch, events: Iterable[WatchEvent]) -> admin_pb2.WatchEventsResponse:
    """`events` are those of the batch that were asked for."""
    return admin_pb2.WatchEventsResponse(
        events=[_event_message(event) for event in events], next=batch.next, lost=batch.lost
    )


def _event_message(event: WatchEvent) -> admin_pb2.Event:
    return admin_pb2.Event(
        number=event.number,
        unix_s=event.unix_s,
        kind=event.kind,
        request_id=event.request_id,
        group_id=event.group_id,
        facts={name: _fact(value) for name, value in event.facts.items()},
    )


def _fact(value: str | float) -> admin_pb2.Fact:
    match value:
        case str():
            return admin_pb2.Fact(text=value.encode("utf-8", "replace").decode())
        case int():
            return admin_pb2.Fact(**_fitting(admin_pb2.Fact, {"whole": value}))
        case _:
            return admin_pb2.Fact(real=value)


def _counts(by_state: Mapping[str, int]) -> dict[str, int]:
    return {state: _within(_BOUNDS[FieldDescriptor.TYPE_UINT32], count) for state, count in by_state.items()}


def _fitting(message: type[Message], values: Mapping[str, Any]) -> dict[str, Any]:
    """Whole numbers within the bounds of the message's fields of these names."""
    fitting = dict(values)
    for name, value in values.items():
        bounds = _BOUNDS.get(message.DESCRIPTOR.fields_by_name[name].type)
        if bounds is not None:
            fitting[name] = _within(bounds, value)
    return fitting


def _within(bounds: tuple[int, int], value: int) -> int:
    least, most = bounds
    return min(max(value, least), most)
