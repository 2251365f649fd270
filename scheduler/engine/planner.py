"""Who computes which positions in the next step. Decode first, then what else is missing, oldest first.

There are no phases: a sequence misses `num_expected - num_scheduled` positions, and a step closes the gap. The token
of a plan in flight counts as known: only its position is needed. Pages are taken when a chunk crosses a page border;
who finds none is stalled for this step and hinders nobody.
"""

from scheduler.engine.draft import Draft
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence
from scheduler.plan import Chunk, NewSequence, PageGrant


class StepPlanner:
    """Fills drafts from the roster's running sequences."""

    def __init__(self, roster: Roster, room: Room) -> None:
        self._roster = roster
        self._room = room
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
        if not behind:
            return
        kept = self._kept_for(draft.computing)
        budget = self._max_step_tokens - len(draft.chunks)
        for seq in behind:
            if budget == 0:
                break
            budget -= self._add(draft, seq, min(seq.num_expected - seq.num_scheduled, budget), kept)

    def _kept_for(self, decoding: list[Sequence]) -> int:
        """Free pages that prompts leave to those that decode: they end, and make room, if only they go on.

        Bites under pressure alone: without it there is room for every claim. Without parking nobody is to wait.
        """
        if not self._roster.config.park:
            return 0
        return sum(self._room.claim(seq) - seq.table.num_pages for seq in decoding)

    def _add(self, draft: Draft, seq: Sequence, num_tokens: int, kept: int = 0) -> int:
        """One chunk of up to `num_tokens` positions, cut to the free pages but `kept`; returns its length."""
        start = seq.num_scheduled
        if start + num_tokens > seq.table.num_slots:
            within = seq.table.num_slots + max(0, self._roster.pool.num_free - kept) * self._page_size
            num_tokens = min(num_tokens, within - start)
            if num_tokens <= 0:
                draft.stalled.append(seq)
                return 0
            page_ids = seq.table.grow(self._roster.pool, start + num_tokens)
            assert page_ids is not None
            if page_ids:
                draft.grants.append(PageGrant(seq_id=seq.seq_id, page_ids=page_ids))
        if not seq.is_on_ranks:
            self._introduce(draft, seq)
        end = start + num_tokens
        sample = end == seq.num_tokens + seq.num_pending
        draft.chunks.append(Chunk(seq_id=seq.seq_id, start=start, num_tokens=num_tokens, sample=sample))
        draft.computing.append(seq)
        seq.num_scheduled = end
        if sample:
            draft.sampling.append(seq)
            seq.num_pending += 1
        return num_tokens

    def _introduce(self, draft: Draft, seq: Sequence) -> None:
        seq.is_on_ranks = True
        prompt = seq.submission.prompt_tokens
        draft.new.append(
            NewSequence(
                seq_id=seq.seq_id, tokens=prompt, num_prompt_tokens=len(prompt), sampling=seq.submission.sampling
            )
        )
