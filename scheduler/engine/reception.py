"""What becomes of an admission: a resident, a deferral, or an end at once when it can never be one."""

import logging

from kv import PageTable, pages_for
from scheduler.engine.outbox import Outbox
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence
from scheduler.messages import Deferred, Finished, FinishReason, Submission

logger = logging.getLogger(__name__)


class Reception:
    """Makes sequences of submissions. Numbers them from 0, residents only."""

    def __init__(self, roster: Roster, room: Room, outbox: Outbox) -> None:
        self._roster = roster
        self._room = room
        self._outbox = outbox
        self._next_seq_id = 0

    def admit(self, submission: Submission, failure: str | None) -> None:
        """`failure` is why nobody can be admitted any more, if so."""
        if submission.request_id in self._roster.by_request:
            logger.warning("request %s is already here; its second admission is dropped", submission.request_id)
            return
        seq = self._sequence(submission)
        seq.error = failure or self._never_fits(submission)
        if seq.error is not None or submission.stop.max_tokens < 1:
            seq.finish = FinishReason.LENGTH if seq.error is None else FinishReason.ERROR
            self._outbox.say(seq, finish=seq.finish)
            self._outbox.report(Finished, request_id=seq.request_id, reason=seq.finish, error=seq.error)
        elif self._room.fits(seq):
            self._next_seq_id += 1
            self._roster.enter(seq)
        else:
            self._outbox.report(Deferred, request_id=seq.request_id)

    def _sequence(self, submission: Submission) -> Sequence:
        config = self._roster.config
        num_prompt = len(submission.prompt_tokens)
        # The last token needs no page: nothing comes after it. Hence the pool holds one token more than it has slots.
        limit = min(num_prompt + submission.stop.max_tokens, config.max_model_len, config.pool_tokens + 1)
        return Sequence(
            seq_id=self._next_seq_id,
            submission=submission,
            limit=limit,
            max_pages=pages_for(limit - 1, config.page_size),
            table=PageTable(config.page_size),
            num_tokens=num_prompt,
            stop_ids=frozenset(() if submission.stop.ignore_eos else submission.stop.stop_token_ids),
        )

    def _never_fits(self, submission: Submission) -> str | None:
        config = self._roster.config
        num_prompt = len(submission.prompt_tokens)
        if num_prompt == 0:
            return "the prompt is empty; at least 1 token is needed"
        if num_prompt >= config.max_model_len:
            return f"the prompt has {num_prompt} tokens; the limit is {config.max_model_len} with 1 generated token"
        if num_prompt > config.pool_tokens:
            return f"the prompt has {num_prompt} tokens; the KV pool holds {config.pool_tokens}"
        return None
