"""The requests that exactness draws from, and what each generates alone.

A token depends on the tokens before it, on seed and position alone; so a shorter request is the beginning of a longer
one, and choice i of a family is the request with seed + i. Hence one solo run of each serves every schedule.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from bench.local_group import GATEWAY_ID
from scheduler.engine.reception import nth_seed
from scheduler.messages import Submission
from scheduler.sampling import SamplingParams, StopRules

Solo = Callable[[Submission], Awaitable[list[int]]]

# How requests draw: greedy first, then what uses the seed, the history, and both.
WAYS = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.9, top_p=0.95),
    SamplingParams(temperature=1.1, top_k=40, min_p=0.02),
    SamplingParams(temperature=0.7, repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BankEntry:
    prompt: tuple[int, ...]
    sampling: SamplingParams


def make_bank(
    *, size: int, prompt_tokens: tuple[int, int], vocab_size: int, first_id: int = 3, seed: int = 0
) -> tuple[BankEntry, ...]:
    """Random prompts with lengths in [prompt_tokens[0], prompt_tokens[1]], one way of drawing after the other."""
    draw = random.Random(seed)
    return tuple(
        BankEntry(
            prompt=tuple(draw.randrange(first_id, vocab_size) for _ in range(draw.randint(*prompt_tokens))),
            sampling=replace(WAYS[number % len(WAYS)], seed=draw.randrange(2**32)),
        )
        for number in range(size)
    )


def submission_of(entry: BankEntry, request_id: str, max_tokens: int, *, priority: int = 0, n: int = 1) -> Submission:
    return Submission(
        request_id=request_id,
        gateway_id=GATEWAY_ID,
        prompt_tokens=entry.prompt,
        sampling=entry.sampling,
        stop=StopRules(max_tokens=max_tokens, ignore_eos=True),
        priority=priority,
        n=n,
    )


class SoloBook:
    """Solo runs of `max_tokens` tokens, made by `solo` when they are first asked for."""

    def __init__(self, bank: Sequence[BankEntry], max_tokens: int, solo: Solo) -> None:
        self._bank, self._max_tokens, self._solo = bank, max_tokens, solo
        self._runs: dict[tuple[int, int], list[int]] = {}

    @property
    def num_runs(self) -> int:
        return len(self._runs)

    async def tokens(self, number: int, choice: int, count: int) -> list[int]:
        """The first `count` tokens of choice `choice` of bank entry `number`, alone."""
        key = (number, choice)
        if key not in self._runs:
            entry = self._bank[number]
            entry = replace(entry, sampling=replace(entry.sampling, seed=nth_seed(entry.sampling.seed, choice)))
            self._runs[key] = await self._solo(submission_of(entry, f"solo-{number}-{choice}", self._max_tokens))
        return self._runs[key][:count]
