"""A living request as clients see it: one shape wherever a request is told of, and llama.cpp's for its slots."""

from typing import Any

from scheduler.admission import RequestRow


def request_object(row: RequestRow) -> dict[str, Any]:
    """`deadline_s` and `then` are those of the hold: the seconds left, and what comes then. Both null without one."""
    return {
        "id": row.request_id,
        "object": "request",
        "state": row.state,
        "held": row.held,
        "deadline_s": _rounded(row.hold_left_s),
        "then": row.then,
        "cancelling": row.cancelling,
        "priority": row.priority,
        "effective_priority": row.effective_priority,
        "n": row.n,
        "prompt_tokens": row.prompt_tokens,
        "tokens": row.tokens,
        "seats": row.seats,
        "pages": row.pages,
        "arena_pages": row.arena_pages,
        "parks": row.parks,
        "recomputes": row.recomputes,
        "passes": row.passes,
        "waited_seconds": _rounded(row.waited_s),
        "parked_seconds": _rounded(row.parked_s),
        "age_seconds": _rounded(row.age_s),
        "slot": row.slot,
        "group": row.group_id,
    }


def slot_object(row: RequestRow, n_ctx: int) -> dict[str, Any]:
    """The names that llama.cpp's server and its parking branches use. A parked request keeps its slot and is processing
    all the same; `preempt_pages` lie in host RAM.
    """
    return {
        "id": row.slot,
        "request_id": row.request_id,
        "n_ctx": n_ctx,
        "n_tokens": row.tokens,
        "is_processing": True,
        "is_preempted": row.state == "parked",
        "is_transferring": row.state in ("parking", "restoring"),
        "n_preempt": row.parks,
        "n_recompute": row.recomputes,
        "priority": row.priority,
        "preempt_pages": row.arena_pages,
        "preempt_manual": row.held,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
