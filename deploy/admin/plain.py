"""Messages of `admin.proto` as plain values, for `--json` and for tables. A request has the shape it has over HTTP, and
`owner` beside it.
"""

from typing import Any

from deploy.admin.messages import HOLD_ENDS, STATE_NAMES
from deploy.admin.v1 import admin_pb2

Plain = dict[str, Any]

_HOLD_ENDS = {number: end.value for end, number in HOLD_ENDS.items()}


def request_object(message: admin_pb2.Request) -> Plain:
    return {
        "id": message.request_id,
        "object": "request",
        "state": STATE_NAMES.get(message.state, "unknown"),
        "held": message.held,
        "deadline_s": _rounded(message.hold_left_s) if message.HasField("hold_left_s") else None,
        "then": _HOLD_ENDS.get(message.then),
        "cancelling": message.cancelling,
        "priority": message.priority,
        "effective_priority": message.effective_priority,
        "n": message.n,
        "prompt_tokens": message.prompt_tokens,
        "tokens": message.tokens,
        "seats": message.seats,
        "pages": message.pages,
        "arena_pages": message.arena_pages,
        "parks": message.parks,
        "recomputes": message.recomputes,
        "passes": message.passes,
        "waited_seconds": _rounded(message.waited_s),
        "parked_seconds": _rounded(message.parked_s),
        "age_seconds": _rounded(message.age_s),
        "slot": message.slot,
        "group": message.group_id or None,
        "owner": message.owner,
    }


def status_object(message: admin_pb2.GetStatusResponse) -> Plain:
    return {
        "draining": message.draining,
        "exhausted": message.exhausted,
        "by_state": dict(message.by_state),
        "tiers": [
            {"effective_priority": tier.effective_priority, "by_state": dict(tier.by_state)} for tier in message.tiers
        ],
        "queued_requests": message.queued_requests,
        "queued_tokens": message.queued_tokens,
        "groups": [_group_object(group) for group in message.groups],
    }


def _group_object(message: admin_pb2.Group) -> Plain:
    return {
        "id": message.group_id,
        "pages_total": message.pages_total,
        "pages_free": message.pages_free,
        "pages_unclaimed": message.pages_unclaimed,
        "arena_total": message.arena_total,
        "arena_free": message.arena_free,
        "seats": message.seats,
        "seats_free": message.seats_free,
        "parked": message.parked,
        "shortfall": message.shortfall,
        "survivor_id": message.survivor_id or None,
        "exhausted": message.exhausted,
    }


def event_object(message: admin_pb2.Event) -> Plain:
    return {
        "number": message.number,
        "unix_s": message.unix_s,
        "kind": message.kind,
        "request_id": message.request_id or None,
        "group": message.group_id or None,
        "facts": {name: _fact(fact) for name, fact in sorted(message.facts.items())},
    }


def lost_object(num_events: int) -> Plain:
    """In the place of events that were asked for and are not kept any more."""
    return {
        "number": None,
        "unix_s": None,
        "kind": "lost",
        "request_id": None,
        "group": None,
        "facts": {"events": num_events},
    }


def _fact(fact: admin_pb2.Fact) -> str | int | float | None:
    name = fact.WhichOneof("value")
    return None if name is None else getattr(fact, name)


def _rounded(seconds: float) -> float:
    return round(seconds, 3)
