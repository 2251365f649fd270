"""Figures on their way to the metrics, as plain values: whoever makes them knows nothing of Ray."""

from typing import NamedTuple

_LOWEST_TIER, _HIGHEST_TIER = -10, 10


class Reading(NamedTuple):
    """`value` for the instrument of that name: added to a counter, set on a gauge, observed by a histogram.

    `labels` are the values of the instrument's labels, in its order.
    """

    name: str
    value: float
    labels: tuple[str, ...] = ()


def tier_label(priority: int) -> str:
    """A priority as a label. Clients choose any int32: those outside [-10, 10] share two labels."""
    if priority < _LOWEST_TIER:
        return f"<{_LOWEST_TIER}"
    return f">{_HIGHEST_TIER}" if priority > _HIGHEST_TIER else str(priority)
