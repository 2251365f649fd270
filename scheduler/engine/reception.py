"""What becomes of an admission: a resident, a deferral, or an end at once when it can never be one."""

import logging
from dataclasses import replace

from kv import PageTable, most_pages_of_each, pages_for, pages_together, shared_pages
from scheduler.engine.outbox import Outbox
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family, Sequence
from scheduler.messages import Deferred, FinishReason, Submission

logger = logging.getLogger(__name__)

_INT64 = 2**63


def nth_seed(seed: int, choice: int) -> int:
    """The seed of a request of its own that draws like this choice: a client's 64-bit integer; after the greatest comes
    the least, as it does for the ranks, who take seeds modulo 2**64."""
    return (seed + choice + _INT64) % (2 * _INT64) - _INT64


class Reception:
    """Makes families of submissions. Numbers their choices from 0, residents only."""

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
        error = failure or self._never_fits(submission)
        if error is not None:
            self._outbox.turn_away(submission, FinishReason.ERROR, error)
            return
        if submission.stop.max_tokens < 1:
            self._outbox.turn_away(submission, FinishReason.LENGTH, None)
            return
        family = self._family(submission)
        if self._room.fits(family):
            self._next_seq_id += submission.n
            self._roster.enter(family)
        else:
            self._outbox.report(Deferred, request_id=family.request_id)

    def _family(self, submission: Submission) -> Family:
        page_size = self._roster.config.page_size
        num_shared_pages = self._num_shared_pages(submission)
        family = Family(
            submission=submission,
            num_shared_pages=num_shared_pages,
            num_shared_tokens=num_shared_pages * page_size,
        )
        num_prompt = len(submission.prompt_tokens)
        limit = self._limit(submission, num_shared_pages)
        stop_ids = frozenset(() if submission.stop.ignore_eos else submission.stop.stop_token_ids)
        for choice in range(submission.n):
            sampling = submission.sampling
            if choice:
                sampling = replace(sampling, seed=nth_seed(sampling.seed, choice))
            family.living.append(
                Sequence(
                    seq_id=self._next_seq_id + choice,
                    choice=choice,
                    family=family,
                    sampling=sampling,
                    limit=limit,
                    max_pages=pages_for(limit - 1, page_size),
                    num_shared_pages=num_shared_pages,
                    table=PageTable(page_size),
                    num_tokens=num_prompt,
                    stop_ids=stop_ids,
                    prompt_end=0 if choice else num_prompt,
                )
            )
        return family

    def _num_shared_pages(self, submission: Submission) -> int:
        return shared_pages(len(submission.prompt_tokens), submission.n, self._roster.config.page_size)

    def _limit(self, submission: Submission, num_shared_pages: int) -> int:
        """Tokens at which a choice ends."""
        config = self._roster.config
        most_pages = most_pages_of_each(config.num_pages, num_shared_pages, submission.n)
        # The last token needs no page: nothing comes after it. Hence the pool holds one token more than it has slots.
        return min(
            len(submission.prompt_tokens) + submission.stop.max_tokens,
            config.max_model_len,
            most_pages * config.page_size + 1,
        )

    def _never_fits(self, submission: Submission) -> str | None:
        config = self._roster.config
        num_prompt, n = len(submission.prompt_tokens), submission.n
        if not 1 <= n <= config.max_running:
            return f"n is {n}; at least 1 and at most {config.max_running} choices can run at once"
        if num_prompt == 0:
            return "the prompt is empty; at least 1 token is needed"
        if num_prompt >= config.max_model_len:
            return f"the prompt has {num_prompt} tokens; the limit is {config.max_model_len} with 1 generated token"
        if num_prompt > config.pool_tokens:
            return f"the prompt has {num_prompt} tokens; the KV pool holds {config.pool_tokens}"
        needed = pages_together(pages_for(num_prompt, config.page_size), self._num_shared_pages(submission), n)
        if needed > config.num_pages:
            return (
                f"{n} choices of a prompt of {num_prompt} tokens need {needed} pages of {config.page_size} tokens; "
                f"the KV pool has {config.num_pages}: ask for fewer choices"
            )
        return None
