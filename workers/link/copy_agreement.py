"""Ends of copies from all ranks, merged into one result a copy. Pure: no socket, no clock.

Unlike steps, copies of one link may end in any order, and on each rank in another.
"""

from collections.abc import Mapping

from scheduler.plan import CopyOutcome, CopyResult
from workers.link.agreement import RanksDisagree
from workers.link.wire import CopyAnswer

# A wrong checksum is the worst: memory that lies must not hide behind a copy that merely failed elsewhere.
_FROM_WORST = (CopyOutcome.CORRUPT, CopyOutcome.FAILED, CopyOutcome.DONE)


class CopyAgreement:
    """Copies in flight. Each rank must answer each of them once."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._answers: dict[int, dict[int, CopyAnswer]] = {}

    @property
    def num_in_flight(self) -> int:
        return len(self._answers)

    @property
    def oldest(self) -> int:
        """Of those in flight, of which there is one at least."""
        return next(iter(self._answers))

    def expect(self, copy_id: int) -> None:
        """A plan with this copy was sent to every rank. Raises RanksDisagree when it is in flight already."""
        if copy_id in self._answers:
            raise RanksDisagree(f"copy {copy_id} was ordered again before it had ended")
        self._answers[copy_id] = {}

    def add(self, rank: int, answer: CopyAnswer) -> CopyResult | None:
        """Take a rank's word; the result when it is the copy's last. Raises RanksDisagree."""
        answers = self._answers.get(answer.copy_id)
        if answers is None or rank in answers:
            asked = "was not asked for or has ended" if answers is None else "it had answered already"
            raise RanksDisagree(f"rank {rank} answered copy {answer.copy_id}, which {asked}")
        answers[rank] = answer
        if len(answers) < self._world_size:
            return None
        del self._answers[answer.copy_id]
        return _merge(answer.copy_id, answers)

    def waits_for(self, copy_id: int) -> list[int]:
        """The ranks that have not answered a copy in flight."""
        return [rank for rank in range(self._world_size) if rank not in self._answers[copy_id]]


def _merge(copy_id: int, answers: Mapping[int, CopyAnswer]) -> CopyResult:
    outcomes = {answer.outcome for answer in answers.values()}
    worst = next(outcome for outcome in _FROM_WORST if outcome in outcomes)
    reasons = [f"rank {rank}: {answers[rank].reason}" for rank in sorted(answers) if answers[rank].outcome == worst]
    return CopyResult(
        copy_id=copy_id,
        outcome=worst,
        reason="" if worst is CopyOutcome.DONE else reasons[0],
        seconds=max(answer.seconds for answer in answers.values()),
        num_bytes=sum(answer.num_bytes for answer in answers.values()),
    )
