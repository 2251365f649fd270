"""What one measured stream was, and the rates that follow from a set of them. Pure arithmetic; times are in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


class StreamError(RuntimeError):
    """A measured stream did not end as asked; a rate made from it would be a lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """`arrivals` holds (time, events) of each read; events need not be tokens and are scaled to them."""

    started: float
    arrivals: tuple[tuple[float, int], ...]
    prompt_tokens: int
    completion_tokens: int

    @property
    def first(self) -> float:
        return self.arrivals[0][0]

    @property
    def ended(self) -> float:
        return self.arrivals[-1][0]

    def tokens_until(self, moment: float) -> float:
        """Tokens that had arrived at `moment` inclusive."""
        events = sum(count for _, count in self.arrivals)
        seen = sum(count for time, count in self.arrivals if time <= moment)
        return self.completion_tokens * seen / events


def decode_rate(records: Sequence[StreamRecord]) -> float:
    """Tokens a second, summed over streams, from when every stream has its first token until the last has ended."""
    begin = max(record.first for record in records)
    end = max(record.ended for record in records)
    if end <= begin:
        raise StreamError(f"{len(records)} streams ended within one read: ask for more tokens")
    return sum(record.completion_tokens - record.tokens_until(begin) for record in records) / (end - begin)


def total_rate(records: Sequence[StreamRecord]) -> float:
    """Generated tokens a second over the whole run, prefill included."""
    begin = min(record.started for record in records)
    end = max(record.ended for record in records)
    return sum(record.completion_tokens for record in records) / (end - begin)


def prefill_rate(record: StreamRecord) -> float:
    """Prompt tokens a second until the first generated token."""
    return record.prompt_tokens / (record.first - record.started)


def longest_gap(record: StreamRecord) -> float:
    """The longest silence between two reads of a stream, in seconds."""
    times = [time for time, _ in record.arrivals]
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)
