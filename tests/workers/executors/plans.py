"""Hand-made plans for two sequences, with a park and a restore of the second in the middle, or without."""

from scheduler.plan import Chunk, NewSequence, PageGrant, ParkOrder, RestoreOrder, StepPlan
from scheduler.sampling import SamplingParams

PROMPT = tuple(range(10, 30))  # 20 tokens: two pages of 16
STAYS, MOVES = 1, 2
PAGES_OF = {STAYS: (0, 1, 2), MOVES: (3, 4, 5)}
GREEDY = SamplingParams(temperature=0.0)


def decode(step: int, *sequences: int, position: int) -> StepPlan:
    chunks = tuple(Chunk(seq_id=seq_id, start=position, num_tokens=1, sample=True) for seq_id in sequences)
    return StepPlan(step=step, chunks=chunks)


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


def plans(*, park: bool) -> list[StepPlan]:
    """Six steps. The chunks are the same either way: sequence 2 rests while it would be parked."""
    first = len(PROMPT)
    moved = (6, 7, 8)
    out = ParkOrder(seq_id=MOVES, page_ids=PAGES_OF[MOVES][:2], arena_ids=(0, 1))
    back = RestoreOrder(seq_id=MOVES, arena_ids=(0, 1), page_ids=moved)
    return [
        prefill(),
        decode(1, STAYS, MOVES, position=first),
        StepPlan(step=2, parks=(out,) if park else (), chunks=decode(2, STAYS, position=first + 1).chunks),
        decode(3, STAYS, position=first + 2),
        StepPlan(
            step=4,
            restores=(back,) if park else (),
            chunks=(
                Chunk(seq_id=STAYS, start=first + 3, num_tokens=1, sample=True),
                Chunk(seq_id=MOVES, start=first + 1, num_tokens=1, sample=True),
            ),
        ),
        StepPlan(step=5, finished=(STAYS, MOVES)),
    ]
