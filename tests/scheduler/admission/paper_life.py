"""One request on paper: how many tokens each choice has, how many pages they need.

Choice i of a family ends i quarters of its length early, so that families shrink.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kv import pages_for
from scheduler.admission import GroupCapacity
from scheduler.messages import GroupLoad, Parked, ParkMode, ParkReason, Submission
from scheduler.sampling import SamplingParams, StopRules


def submission(request_id: str, prompt: int = 16, max_tokens: int = 64, priority: int = 0, n: int = 1) -> Submission:
    return Submission(
        request_id=request_id,
        gateway_id="gateway",
        prompt_tokens=tuple(range(prompt)),
        sampling=SamplingParams(temperature=0.0),
        stop=StopRules(max_tokens=max_tokens),
        priority=priority,
        n=n,
    )


@dataclass
class Life:
    """One request on paper. `place` is running, parking, parked or restoring; `choices` are the tokens of the living,
    by number. `behind`: tokens whose pages were dropped and that are computed again."""

    submission: Submission
    choices: dict[int, int]
    limits: dict[int, int]
    place: str = "running"
    pages: int = 0
    arena: int = 0
    behind: int = 0
    mode: ParkMode = ParkMode.COPY
    reason: ParkReason = ParkReason.PRESSURE
    wants_out: ParkReason | None = None
    parks: int = 0
    ended_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """The prompt once and all output."""
        num_prompt = len(self.submission.prompt_tokens)
        return num_prompt + self.ended_tokens + sum(tokens - num_prompt for tokens in self.choices.values())

    def has_parked(self, pages_to_hold: int) -> Callable[[GroupLoad], Parked]:
        """What its engine says now that it is parked; the account is still to come."""
        parked = partial(
            Parked,
            request_id=self.submission.request_id,
            num_tokens=self.num_tokens,
            seats=len(self.choices),
            pages_to_hold=pages_to_hold,
            num_pages=self.arena,
            mode=self.mode,
            reason=self.reason,
        )
        return lambda load: parked(load=load)

    def needs(self, page_size: int, ahead: int = 0) -> int:
        """Pages for its tokens and `ahead` more of each choice; what choices share once."""
        shared = (len(self.submission.prompt_tokens) - 1) // page_size if self.submission.n > 1 else 0
        return shared + sum(
            pages_for(min(tokens + ahead, self.limits[choice]), page_size) - shared
            for choice, tokens in self.choices.items()
        )


def new_life(sub: Submission, capacity: GroupCapacity) -> Life:
    """Each choice ends where its length, the model's or its even part of the pool does."""
    num_prompt, most = len(sub.prompt_tokens), sub.stop.max_tokens
    shared = (num_prompt - 1) // capacity.page_size if sub.n > 1 else 0
    of_pool = (shared + (capacity.num_pages - shared) // sub.n) * capacity.page_size + 1
    lengths = {choice: max(1, most - choice * (most // 4)) for choice in range(sub.n)}
    return Life(
        submission=sub,
        choices=dict.fromkeys(range(sub.n), num_prompt),
        limits={i: min(num_prompt + length, capacity.max_model_len, of_pool) for i, length in lengths.items()},
    )
