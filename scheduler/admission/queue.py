"""Fresh requests in order: the highest waiting tier first, first come first served within a tier.

One sorted list a priority. Within it the oldest has always waited longest, so the first of the whole queue is the best
of the lists' heads: age may lift a tier as time goes by without anything being sorted again.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.request_record import RequestRecord


def _arrival(record: RequestRecord) -> int:
    return record.seq


class FreshQueue:
    """Requests no engine knows. `num_tokens` counts their prompts."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self._by_priority: dict[int, list[RequestRecord]] = {}
        self._num_requests = 0
        self.num_tokens = 0

    def __len__(self) -> int:
        return self._num_requests

    def __iter__(self) -> Iterator[RequestRecord]:
        for records in self._by_priority.values():
            yield from records

    def add(self, record: RequestRecord) -> None:
        """Put it at the place of its arrival, which for one put back is exactly the place it had."""
        insort(self._by_priority.setdefault(record.submission.priority, []), record, key=_arrival)
        self._num_requests += 1
        self.num_tokens += len(record.submission.prompt_tokens)

    def remove(self, record: RequestRecord) -> None:
        """Take it out, wherever it stands. `KeyError` if it is not here."""
        records = self._by_priority.get(record.submission.priority, [])
        index = bisect_left(records, record.seq, key=_arrival)
        if index == len(records) or records[index] is not record:
            raise KeyError(record.request_id)
        del records[index]
        if not records:
            del self._by_priority[record.submission.priority]
        self._num_requests -= 1
        self.num_tokens -= len(record.submission.prompt_tokens)

    def first(self, now: float) -> RequestRecord | None:
        """Whoever goes next, or None."""
        heads = (records[0] for records in self._by_priority.values())
        return max(heads, key=lambda head: (head.waiting_tier(self._policy, now), -head.seq), default=None)
