"""Words of an engine, for tests in which only some of what they say matters."""

from typing import Any

from scheduler.messages import GroupLoad, Parked, ParkMode, ParkReason

# Of a group with one page, in which nobody lives.
LOAD = GroupLoad(group_id="g", last_command=0, pages_total=1, pages_free=1, arena_total=0, arena_free=0, residents=())
PARKED: dict[str, Any] = {
    "request_id": "r",
    "num_tokens": 1,
    "seats": 1,
    "pages_to_hold": 1,
    "num_pages": 1,
    "mode": ParkMode.COPY,
    "reason": ParkReason.EXPLICIT,
}


def parked(load: GroupLoad, **facts: Any) -> Parked:
    """One page of one token, copied by order, but for what is said."""
    return Parked(load=load, **(PARKED | facts))
