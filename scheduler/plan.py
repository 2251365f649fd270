"""What crosses from the engine to every rank in one step, and what comes back.

A plan carries changes, never whole tables: ranks mirror each sequence's tokens and pages from them. Order of effects
on a rank: `finished`, `freed_arena_ids`, `copies_out`, `copies_in`, `new`, `resets`, `grants`, then the forward pass
over `chunks`, then one sampled token for every chunk with `sample`. A rank appends the token it sampled to its mirror
of the sequence by itself: the plan of step n + 1 may be sent before the result of step n is known, and names positions
only.

A copy begins at its plan's place, after everything the plans before it computed, and runs beside the steps that follow.
Its end comes as a `CopyResult` of its own. Until then the engine lets nobody else use its pages and arena slots, and
computes no position of a sequence that owns them. Ranks know nothing of whose pages they copy.
"""

from dataclasses import dataclass
from enum import StrEnum

from scheduler.sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSequence:
    """A sequence the ranks do not know yet; `tokens` is all that is known of it (prompt, and replayed output).

    `page_ids` are pages of a shared prompt that it begins with, in logical order; the first `num_computed` positions
    lie in them, computed.
    """

    seq_id: int
    tokens: tuple[int, ...]
    num_prompt_tokens: int
    sampling: SamplingParams
    page_ids: tuple[int, ...] = ()
    num_computed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReset:
    """`page_ids` become the sequence's whole page table, and its first `num_computed` positions count as computed.

    After a restore: the pages it came back to. After a recompute park: no pages and 0. Its tokens stay.
    """

    seq_id: int
    page_ids: tuple[int, ...]
    num_computed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageGrant:
    """Pages appended, in logical order, to a sequence's page table."""

    seq_id: int
    page_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Positions [start, start + num_tokens) of a sequence to compute. `sample`: draw the token after the last."""

    seq_id: int
    start: int
    num_tokens: int
    sample: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOut:
    """Pool page page_ids[i] goes to arena slot arena_ids[i]. `copy_id` is used once; the checksums stay with slots."""

    copy_id: int
    page_ids: tuple[int, ...]
    arena_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyIn:
    """Arena slot arena_ids[i] goes to pool page page_ids[i], and its checksum is compared on the way."""

    copy_id: int
    arena_ids: tuple[int, ...]
    page_ids: tuple[int, ...]


class CopyOutcome(StrEnum):
    """FAILED: no host memory, or an error; CORRUPT: a checksum is wrong. Either way the copy counts as not made."""

    DONE = "done"
    FAILED = "failed"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """A copy has ended on every rank. `outcome` is the worst of them, `reason` says why for people.

    `seconds` is the longest rank's time, `num_bytes` the sum over ranks.
    """

    copy_id: int
    outcome: CopyOutcome
    reason: str = ""
    seconds: float = 0.0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step for all ranks. `step` counts from 0 without a gap; a rank refuses any other number.

    `freed_arena_ids`: slots whose content nobody wants any more; one of them may be the target of a copy in this plan.
    """

    step: int
    finished: tuple[int, ...] = ()
    freed_arena_ids: tuple[int, ...] = ()
    copies_out: tuple[CopyOut, ...] = ()
    copies_in: tuple[CopyIn, ...] = ()
    new: tuple[NewSequence, ...] = ()
    resets: tuple[PageReset, ...] = ()
    grants: tuple[PageGrant, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The agreed answer of all ranks.

    `tokens` holds (seq_id, token) for every chunk with `sample`, in plan order. `step_s` is the longest rank's time in
    seconds.
    """

    step: int
    tokens: tuple[tuple[int, int], ...] = ()
    step_s: float = 0.0
