"""What a group can hold, and how many pages a request takes of it. A family's shared prompt counts once."""

from dataclasses import dataclass

from kv import most_pages_of_each, pages_for, pages_together, shared_pages
from scheduler.messages import Submission


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCapacity:
    """Told once when a group registers. `seats`: sequences that run side by side at most.

    `recompute`: a park that finds no arena room drops its pages instead of failing. `park` False: nobody is ever
    parked. `page_bytes`: one page on all ranks together, for metrics only.
    """

    group_id: str
    num_pages: int
    page_size: int
    seats: int
    max_model_len: int
    recompute: bool = True
    park: bool = True
    page_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("num_pages", "page_size", "seats", "max_model_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"group {self.group_id}: {name} is {getattr(self, name)}; it must be 1 or more")
        if self.page_bytes < 0:
            raise ValueError(f"group {self.group_id}: page_bytes is {self.page_bytes}; it must be 0 or more")

    @property
    def pool_tokens(self) -> int:
        return self.num_pages * self.page_size

    @property
    def limit_tokens(self) -> int:
        """Prompt and first generated token together must not exceed this."""
        return min(self.pool_tokens, self.max_model_len)

    def pages(self, submission: Submission, num_generated: int, choices: int) -> int:
        """Pages that `choices` of a request take when each has `num_generated` tokens beside the prompt."""
        each = pages_for(len(submission.prompt_tokens) + num_generated, self.page_size)
        return pages_together(each, self._shared_pages(submission), choices)

    def _shared_pages(self, submission: Submission) -> int:
        return shared_pages(len(submission.prompt_tokens), submission.n, self.page_size)

    def most_pages(self, submission: Submission, choices: int) -> int:
        """Pages that `choices` of a request take at their ends. The last token of each needs none."""
        each = most_pages_of_each(self.num_pages, self._shared_pages(submission), submission.n)
        of_pool = each * self.page_size + 1
        num_prompt = len(submission.prompt_tokens)
        limit = min(num_prompt + submission.stop.max_tokens, self.max_model_len, of_pool)
        return self.pages(submission, max(0, limit - 1 - num_prompt), choices)

    def first_pages(self, submission: Submission) -> int:
        """Pages without which it can never generate one token of each choice."""
        return self.pages(submission, 1, submission.n)

    def can_ever_hold(self, submission: Submission) -> bool:
        """Whether it could run here if it were alone."""
        return (
            submission.n <= self.seats
            and len(submission.prompt_tokens) + 1 <= self.max_model_len
            and self.first_pages(submission) <= self.num_pages
        )
