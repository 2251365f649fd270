"""Hand-made plans for two sequences, with a copy out and back of the second in the middle, or without."""

from scheduler.plan import Chunk, CopyIn, CopyOut, NewSequence, PageGrant, PageReset, StepPlan
from scheduler.sampling import SamplingParams

PROMPT = tuple(range(10, 30))  # 20 tokens: two pages of 16
STAYS, MOVES = 1, 2
PAGES_OF = {STAYS: (0, 1, 2), MOVES: (3, 4, 5)}
MOVED = (6, 7, 8)
SLOTS = (0, 1)
OUT, BACK = 1, 2
GREEDY = SamplingParams(temperature=0.0)


def chunks(*sequences: int, position: int) -> tuple[Chunk, ...]:
    return tuple(Chunk(seq_id=seq_id, start=position, num_tokens=1, sample=True) for seq_id in sequences)


def prefill() -> StepPlan:
    both = (STAYS, MOVES)
    return StepPlan(
        step=0,
        new=tuple(
            NewSequence(seq_id=seq_id, tokens=PROMPT, num_prompt_tokens=len(PROMPT), sampling=GREEDY) for seq_id in both
        ),
        grants=tuple(PageGrant(seq_id=seq_id, page_ids=PAGES_OF[seq_id]) for seq_id in both),
        chunks=tuple(Chunk(seq_id=seq_id, start=0, num_tokens=len(PROMPT), sample=True) for seq_id in both),
    )


def copy_out(step: int) -> StepPlan:
    """The moved sequence's written pages, beside no step."""
    return StepPlan(step=step, copies_out=(CopyOut(copy_id=OUT, page_ids=PAGES_OF[MOVES][:2], arena_ids=SLOTS),))


def copy_in(step: int) -> StepPlan:
    return StepPlan(step=step, copies_in=(CopyIn(copy_id=BACK, arena_ids=SLOTS, page_ids=MOVED[:2]),))


def stages(*, park: bool) -> list[list[StepPlan]]:
    """Seven steps; the copy that a stage starts must have ended before the next. The chunks are the same either way:
    sequence 2 rests while it would be parked.
    """
    first = len(PROMPT)
    restored = PageReset(seq_id=MOVES, page_ids=MOVED, num_computed=first + 1)
    return [
        [
            prefill(),
            StepPlan(step=1, chunks=chunks(STAYS, MOVES, position=first)),
            StepPlan(
                step=2,
                copies_out=copy_out(2).copies_out if park else (),
                chunks=chunks(STAYS, position=first + 1),
            ),
            StepPlan(step=3, chunks=chunks(STAYS, position=first + 2)),
        ],
        [
            StepPlan(step=4, copies_in=copy_in(4).copies_in if park else (), chunks=chunks(STAYS, position=first + 3)),
        ],
        [
            StepPlan(
                step=5,
                freed_arena_ids=SLOTS if park else (),
                resets=(restored,) if park else (),
                chunks=(*chunks(STAYS, position=first + 4), *chunks(MOVES, position=first + 1)),
            ),
            StepPlan(step=6, finished=(STAYS, MOVES)),
        ],
    ]


def plans(*, park: bool) -> list[StepPlan]:
    return [plan for stage in stages(park=park) for plan in stage]
