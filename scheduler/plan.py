"""What crosses from the engine to every rank in one step, and what comes back.

A plan carries changes, never whole tables: ranks mirror each sequence's tokens and pages from them. Order of effects
on a rank: `finished`, `parks`, `restores`, `new`, `grants`, then the forward pass over `chunks`, then one sampled
token for every chunk with `sample`. A rank appends the token it sampled to its mirror of the sequence by itself: the
plan of step n + 1 may be sent before the result of step n is known, and names positions only.
"""

from dataclasses import dataclass

from scheduler.sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSequence:
    """A sequence the ranks do not know yet; `tokens` is all that is known of it (prompt, and replayed output)."""

    seq_id: int
    tokens: tuple[int, ...]
    num_prompt_tokens: int
    sampling: SamplingParams


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
class ParkOrder:
    """Copy the first pages of a sequence out: page_ids[i] goes to arena slot arena_ids[i]. Its tokens stay mirrored."""

    seq_id: int
    page_ids: tuple[int, ...]
    arena_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """Copy in: arena slot arena_ids[i] goes to page_ids[i], which become the sequence's whole page table."""

    seq_id: int
    arena_ids: tuple[int, ...]
    page_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step for all ranks. `step` counts from 0 without a gap; a rank refuses any other number."""

    step: int
    finished: tuple[int, ...] = ()
    parks: tuple[ParkOrder, ...] = ()
    restores: tuple[RestoreOrder, ...] = ()
    new: tuple[NewSequence, ...] = ()
    grants: tuple[PageGrant, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The agreed answer of all ranks.

    `tokens` holds (seq_id, token) for every chunk with `sample`, in plan order. `failed_copies` names sequences whose
    park or restore failed on at least one rank: nothing of theirs has moved. `step_s` is the longest rank's time in
    seconds.
    """

    step: int
    tokens: tuple[tuple[int, int], ...] = ()
    failed_copies: tuple[int, ...] = ()
    step_s: float = 0.0
