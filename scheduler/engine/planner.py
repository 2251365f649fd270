"""Who computes which positions in the next step. Decode first, then what else is missing, oldest first.

There are no phases: a sequence misses `num_expected - num_scheduled` positions, and a step closes the gap. The token
of a plan in flight counts as known: only its position is needed. Pages are taken when a chunk crosses a page border;
who finds none is stalled for this step and hinders nobody.

The ranks are told of a sequence, or of the page table it came back with, together with its first chunk. When a prompt
that choices share is computed, or will be by the plan at hand, the others may begin in the plan after it.
"""

from scheduler.engine.counters import EngineCounters
from scheduler.engine.draft import Draft
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence
from scheduler.plan import Chunk, NewSequence, PageGrant, PageReset


class StepPlanner:
    """Fills drafts from the roster's running sequences."""

    def __init__(self, roster: Roster, room: Room, counters: EngineCounters) -> None:
        self._roster = roster
        self._room = room
        self._counters = counters
        self._page_size = roster.config.page_size
        self._max_step_tokens = roster.config.max_step_tokens

    def fill(self, draft: Draft) -> None:
        """Add chunks and the pages they need. A sequence that needs no more tokens than are in flight is left alone."""
        behind: list[Sequence] = []
        for seq in self._roster.running:
            expected = seq.num_tokens + seq.num_pending
            if expected >= seq.limit:
                continue  # its last token is in flight
            if expected - seq.num_scheduled == 1:
                self._add(draft, seq, 1)
            else:
                behind.append(seq)
        if behind:
            self._catch_up(draft, behind)
        if self._roster.expecting:
            self._lend()

    def _catch_up(self, draft: Draft, behind: list[Sequence]) -> None:
        """Prompts, and tokens whose pages were dropped, share what is left of the step."""
        kept = self._kept_for(draft.computing)
        budget = self._max_step_tokens - len(draft.chunks)
        for seq in behind:
            if budget == 0:
                break
            budget -= self._add(draft, seq, min(seq.num_expected - seq.num_scheduled, budget), kept)

    def _lend(self) -> None:
        for family in tuple(self._roster.expecting):
            if family.living[0].num_scheduled >= family.num_shared_tokens:
                self._roster.lend(family)

    def _kept_for(self, decoding: list[Sequence]) -> int:
        """Free pages that prompts leave to those that decode: they end, and make room, if only they go on.

        Bites under pressure alone: without it there is room for every claim. Without parking nobody is to wait.
        """
        if not self._roster.config.park:
            return 0
        return sum(self._room.claim(seq) - seq.table.num_own for seq in decoding)

    def _add(self, draft: Draft, seq: Sequence, num_tokens: int, kept: int = 0) -> int:
        """One chunk of up to `num_tokens` positions, cut to the free pages but `kept`; returns its length."""
        start = seq.num_scheduled
        if start + num_tokens > seq.table.num_slots:
            within = seq.table.num_slots + max(0, self._roster.pool.num_free - kept) * self._page_size
            num_tokens = min(num_tokens, within - start)
            if num_tokens <= 0:
                draft.stalled.append(seq)
                return 0
            if not seq.is_current:
                self._tell(draft, seq)
            page_ids = seq.table.grow(self._roster.pool, start + num_tokens)
            assert page_ids is not None
            if page_ids:
                draft.grants.append(PageGrant(seq_id=seq.seq_id, page_ids=page_ids))
        elif not seq.is_current:
            self._tell(draft, seq)
        end = start + num_tokens
        sample = end == seq.num_tokens + seq.num_pending
        draft.chunks.append(Chunk(seq_id=seq.seq_id, start=start, num_tokens=num_tokens, sample=sample))
        draft.computing.append(seq)
        seq.num_flights += 1
        if start < seq.prompt_end or start < seq.replay_end:
            self._count(seq, start, end)
        seq.num_scheduled = end
        if sample:
            draft.sampling.append(seq)
            seq.num_pending += 1
        return num_tokens

    def _tell(self, draft: Draft, seq: Sequence) -> None:
        """Before it grows: what the ranks don't know of it, or of its page table."""
        page_ids = seq.table.page_ids
        if seq.is_on_ranks:
            draft.resets.append(PageReset(seq_id=seq.seq_id, page_ids=page_ids, num_computed=seq.num_scheduled))
        else:
            prompt = seq.family.submission.prompt_tokens
            draft.new.append(
                NewSequence(
                    seq_id=seq.seq_id,
                    tokens=prompt,
                    num_prompt_tokens=len(prompt),
                    sampling=seq.sampling,
                    page_ids=page_ids,
                    num_computed=seq.num_scheduled,
                )
            )
        seq.is_on_ranks = seq.is_current = True

    def _count(self, seq: Sequence, start: int, end: int) -> None:
        """[start, end) is about to be computed: which of it again, which of it as a prompt."""
        self._counters.recomputed_tokens += max(0, min(end, seq.replay_end) - start)
        self._counters.prompt_tokens += max(0, min(end, seq.prompt_end) - max(start, seq.replay_end))
