"""Interleaved rounds: in each, every arm does the same work, in an order that turns from round to round."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from bench.prompts import Prompt
from bench.spread import Spread, paired_ratio, spread
from bench.streams import StreamRecord, decode_rate, prefill_rate, total_rate

T = TypeVar("T")


class Arm(Protocol):
    """Something that generates: greedy, never stopped by an end token, no prefix reused."""

    name: str

    async def stream(self, prompt: Prompt, max_tokens: int) -> StreamRecord:
        """Generate exactly `max_tokens` tokens. Raises `StreamError` when it did not."""
        ...


class Prompts(Protocol):
    """Where prompts of an exact length come from."""

    def make(self, num_tokens: int) -> Prompt: ...

    def make_many(self, count: int, num_tokens: int) -> list[Prompt]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one round does on each arm. `prefill_repeats` single prompts make one prefill sample, their median rate."""

    num_streams: tuple[int, ...] = (1, 4, 8, 16)
    decode_prompt_tokens: int = 64
    max_tokens: int = 128
    prefill_prompt_tokens: int = 512
    prefill_repeats: int = 3
    rounds: int = 3


@dataclass(slots=True)
class Samples:
    """Rates in tokens/s, one a round: `decode` and `total` by (arm, streams), `prefill` by arm."""

    decode: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    total: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    prefill: dict[str, list[float]] = field(default_factory=dict)

    def decode_ratio(self, above: str, below: str, num_streams: int) -> Spread:
        return paired_ratio(self.decode[above, num_streams], self.decode[below, num_streams])

    def prefill_ratio(self, above: str, below: str) -> Spread:
        return paired_ratio(self.prefill[above], self.prefill[below])


def turned(arms: Sequence[T], turn: int) -> list[T]:
    """The same arms, another one first: what comes first in a round has no standing advantage."""
    cut = turn % len(arms)
    return [*arms[cut:], *arms[:cut]]


async def run_together(arm: Arm, prompts: Sequence[Prompt], max_tokens: int) -> list[StreamRecord]:
    return list(await asyncio.gather(*(arm.stream(prompt, max_tokens) for prompt in prompts)))


async def warm_up(arms: Sequence[Arm], prompts: Prompts, work: Work) -> None:
    """Every arm once through both shapes of work, unmeasured: compilers, caches and page tables are then warm."""
    for arm in arms:
        await run_together(arm, prompts.make_many(2, work.decode_prompt_tokens), 8)
        await arm.stream(prompts.make(work.prefill_prompt_tokens), 1)


async def run_rounds(arms: Sequence[Arm], prompts: Prompts, work: Work, progress: Callable[[str], None]) -> Samples:
    samples = Samples()
    for turn in range(work.rounds):
        for num_streams in work.num_streams:
            short = prompts.make_many(num_streams, work.decode_prompt_tokens)
            for arm in turned(arms, turn):
                progress(f"round {turn + 1} of {work.rounds}: {arm.name}, {num_streams} streams")
                records = await run_together(arm, short, work.max_tokens)
                samples.decode.setdefault((arm.name, num_streams), []).append(decode_rate(records))
                samples.total.setdefault((arm.name, num_streams), []).append(total_rate(records))
        if work.prefill_repeats:
            long = prompts.make_many(work.prefill_repeats, work.prefill_prompt_tokens)
            for arm in turned(arms, turn):
                progress(f"round {turn + 1} of {work.rounds}: {arm.name}, prefill")
                rates = [prefill_rate(await arm.stream(prompt, 1)) for prompt in long]
                samples.prefill.setdefault(arm.name, []).append(spread(rates).median)
    return samples
