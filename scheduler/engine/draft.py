"""A step while it is put together, and afterwards the engine's own record of the plan in flight."""

from dataclasses import dataclass, field

from scheduler.engine.sequence import Sequence
from scheduler.plan import Chunk, CopyIn, CopyOut, NewSequence, PageGrant, PageReset, StepPlan


@dataclass(slots=True)
class Draft:
    """`computing` have a chunk and count one more flight for it, `sampling` those of them that draw a token, `stalled`
    wanted a page that nobody had."""

    step: int
    finished: tuple[int, ...] = ()
    freed_arena_ids: tuple[int, ...] = ()
    copies_out: list[CopyOut] = field(default_factory=list)
    copies_in: list[CopyIn] = field(default_factory=list)
    new: list[NewSequence] = field(default_factory=list)
    resets: list[PageReset] = field(default_factory=list)
    grants: list[PageGrant] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    computing: list[Sequence] = field(default_factory=list)
    sampling: list[Sequence] = field(default_factory=list)
    stalled: list[Sequence] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.chunks or self.copies_out or self.copies_in or self.finished or self.freed_arena_ids)

    def seal(self) -> StepPlan:
        """The plan to send."""
        return StepPlan(
            step=self.step,
            finished=self.finished,
            freed_arena_ids=self.freed_arena_ids,
            copies_out=tuple(self.copies_out),
            copies_in=tuple(self.copies_in),
            new=tuple(self.new),
            resets=tuple(self.resets),
            grants=tuple(self.grants),
            chunks=tuple(self.chunks),
        )
