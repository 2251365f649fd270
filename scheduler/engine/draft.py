"""A step while it is put together, and afterwards the engine's own record of the plan in flight."""

from dataclasses import dataclass, field

from scheduler.engine.sequence import Sequence
from scheduler.plan import Chunk, NewSequence, PageGrant, ParkOrder, RestoreOrder, StepPlan


@dataclass(slots=True)
class Draft:
    """`computing` have a chunk, `sampling` those of them that draw a token, `stalled` wanted a page that nobody had."""

    finished: tuple[int, ...] = ()
    parks: list[ParkOrder] = field(default_factory=list)
    restores: list[RestoreOrder] = field(default_factory=list)
    new: list[NewSequence] = field(default_factory=list)
    grants: list[PageGrant] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    computing: list[Sequence] = field(default_factory=list)
    sampling: list[Sequence] = field(default_factory=list)
    parking: list[Sequence] = field(default_factory=list)
    restoring: list[Sequence] = field(default_factory=list)
    stalled: list[Sequence] = field(default_factory=list)
    step: int = -1

    @property
    def is_empty(self) -> bool:
        return not (self.chunks or self.parks or self.restores or self.finished)

    def seal(self, step: int) -> StepPlan:
        """The plan to send. From here on every sequence in it counts one more flight."""
        self.step = step
        for group in (self.computing, self.parking, self.restoring):
            for seq in group:
                seq.num_flights += 1
        return StepPlan(
            step=step,
            finished=self.finished,
            parks=tuple(self.parks),
            restores=tuple(self.restores),
            new=tuple(self.new),
            grants=tuple(self.grants),
            chunks=tuple(self.chunks),
        )
