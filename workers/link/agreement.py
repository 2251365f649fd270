"""Answers of all ranks, merged into one result a step. Pure: no socket, no clock."""

from collections import deque

from scheduler.plan import StepResult
from workers.link.errors import LinkError
from workers.link.wire import Answer


class RanksDisagree(LinkError):
    """Two ranks executed different plans, drew different tokens, or are at different steps."""


class Agreement:
    """Plans in flight in order. Each rank must answer each of them, in that order, with the same digest."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._steps: deque[int] = deque()
        self._answers: list[deque[Answer]] = [deque() for _ in range(world_size)]

    @property
    def num_in_flight(self) -> int:
        return len(self._steps)

    def expect(self, step: int) -> None:
        """A plan was sent to every rank."""
        self._steps.append(step)

    def add(self, rank: int, answer: Answer) -> StepResult | None:
        """Take an answer; the result when it is the last one of the oldest step. Raises RanksDisagree."""
        place = len(self._answers[rank])
        if place >= len(self._steps):
            raise RanksDisagree(f"rank {rank} answered step {answer.step}, which it was not asked for")
        if answer.step != self._steps[place]:
            raise RanksDisagree(f"rank {rank} answered step {answer.step}, expected step {self._steps[place]}")
        self._answers[rank].append(answer)
        if any(not answers for answers in self._answers):
            return None
        return self._merge(self._steps.popleft(), [answers.popleft() for answers in self._answers])

    def waits_for(self) -> list[int]:
        """The ranks that have not answered the oldest step."""
        return [rank for rank, answers in enumerate(self._answers) if not answers] if self._steps else []

    def _merge(self, step: int, answers: list[Answer]) -> StepResult:
        for rank, answer in enumerate(answers):
            if answer.digest != answers[0].digest:
                raise RanksDisagree(
                    f"step {step}: rank {rank} has digest {answer.digest:08x}, rank 0 has {answers[0].digest:08x}: "
                    "they executed different plans or drew different tokens"
                )
        return StepResult(step=step, tokens=answers[0].tokens, step_s=max(answer.step_s for answer in answers))
