"""Bounds of the fields of requests. Every error names the field and its bound."""

import math
from collections.abc import Iterable

from cluster.waits import MAX_WAIT_S
from deploy.admin.messages import HOLD_ENDS, STATE_NAMES
from deploy.admin.v1 import admin_pb2
from scheduler.admission import HoldTerms
from scheduler.admission.hold import MAX_HOLD_S

MAX_ID_CHARS = 256
MAX_LISTED = 10_000
DEFAULT_LISTED = 1_000
DEFAULT_PARK_WAIT_S = 5.0

_HOLD_ENDS = {number: end for end, number in HOLD_ENDS.items()}


class BadField(ValueError):
    """`field` is out of its bounds, which `bound` states."""

    def __init__(self, field: str, bound: str, given: object) -> None:
        super().__init__(f"{field} must be {bound} (given: {given!r})")
        self.field = field


def checked_id(request_id: str) -> str:
    if not 1 <= len(request_id) <= MAX_ID_CHARS:
        raise BadField("request_id", f"1 to {MAX_ID_CHARS} characters", f"{len(request_id)} characters")
    return request_id


def checked_watched(request_id: str) -> str:
    """An id, or "" for all."""
    return checked_id(request_id) if request_id else ""


def checked_prefix(id_prefix: str) -> str:
    if len(id_prefix) > MAX_ID_CHARS:
        raise BadField("id_prefix", f"at most {MAX_ID_CHARS} characters", f"{len(id_prefix)} characters")
    return id_prefix


def checked_limit(limit: int) -> int:
    if limit > MAX_LISTED:
        raise BadField("limit", f"at most {MAX_LISTED}; 0 means {DEFAULT_LISTED}", limit)
    return limit or DEFAULT_LISTED


def checked_states(states: Iterable[int]) -> frozenset[str]:
    """The names of the states; none means all."""
    unknown = [state for state in states if state not in STATE_NAMES]
    if unknown:
        raise BadField("states", "of 1 to 5, the states of `State`", unknown[0])
    return frozenset(STATE_NAMES[state] for state in states) or frozenset(STATE_NAMES.values())


def checked_terms(request: admin_pb2.ParkRequest) -> HoldTerms:
    deadline_s = request.deadline_s if request.HasField("deadline_s") else None
    if deadline_s is not None and not 0.0 < deadline_s <= MAX_HOLD_S:  # NaN, too, is not
        raise BadField("deadline_s", f"more than 0 and at most {MAX_HOLD_S:.0f} seconds", deadline_s)
    if request.then == admin_pb2.HOLD_END_UNSPECIFIED:
        return HoldTerms(deadline_s=deadline_s)
    if deadline_s is None:
        raise BadField("then", "left out without a deadline_s", request.then)
    if request.then not in _HOLD_ENDS:
        raise BadField("then", "1 (unpark) or 2 (cancel)", request.then)
    return HoldTerms(deadline_s=deadline_s, then=_HOLD_ENDS[request.then])


def checked_wait_s(wait_s: float) -> float:
    if math.isnan(wait_s) or not 0.0 <= wait_s <= MAX_WAIT_S:
        raise BadField("wait_s", f"0 to {MAX_WAIT_S:.0f} seconds", wait_s)
    return wait_s
