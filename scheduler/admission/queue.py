"""Fresh requests in order: the highest waiting tier first, first come first served within a tier.

One list a priority, sorted by arrival. Of those that have waited since they came, the oldest has waited longest, so the
best of them is among the lists' heads: age may lift a tier as time goes by without anything being sorted again. Those
whose wait once stood still are kept apart, for with them it may be otherwise.
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
        self._once_held: dict[int, RequestRecord] = {}
        self._num_requests = 0
        self.num_tokens = 0

    def __len__(self) -> int:
        return self._num_requests

    def __iter__(self) -> Iterator[RequestRecord]:
        for records in self._by_priority.values():
            yield from records
        yield from self._once_held.values()

    def add(self, record: RequestRecord) -> None:
        """Put it at the place of its arrival, which for one put back is exactly the place it had."""
        if record.since == record.born_at:
            insort(self._by_priority.setdefault(record.priority, []), record, key=_arrival)
        else:
            self._once_held[record.seq] = record
        self._num_requests += 1
        self.num_tokens += len(record.submission.prompt_tokens)

    def remove(self, record: RequestRecord) -> None:
        """Take it out, wherever it stands. `KeyError` if it is not here."""
        if self._once_held.pop(record.seq, None) is None:
            self._remove_from_list(record)
        self._num_requests -= 1
        self.num_tokens -= len(record.submission.prompt_tokens)

    def _remove_from_list(self, record: RequestRecord) -> None:
        records = self._by_priority.get(record.priority, [])
        index = bisect_left(records, record.seq, key=_arrival)
        if index == len(records) or records[index] is not record:
            raise KeyError(record.request_id)
        del records[index]
        if not records:
            del self._by_priority[record.priority]

    def first(self, now: float) -> RequestRecord | None:
        """Whoever goes next, or None."""
        heads = [records[0] for records in self._by_priority.values()]
        return max(
            (*heads, *self._once_held.values()),
            key=lambda head: (head.waiting_tier(self._policy, now), -head.seq),
            default=None,
        )
