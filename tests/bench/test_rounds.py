"""Rounds over arms that keep their own time."""

from collections.abc import Sequence

import pytest

from bench.prompts import Prompt
from bench.rounds import Samples, Work, run_rounds, turned
from bench.streams import StreamRecord


class ClockworkArm:
    """Each token takes `token_s`; a prompt token takes a tenth of that. Notes what it was asked."""

    def __init__(self, name: str, token_s: float, log: list[tuple[str, int, int]]) -> None:
        self.name = name
        self._token_s, self._log = token_s, log

    async def stream(self, prompt: Prompt, max_tokens: int) -> StreamRecord:
        self._log.append((self.name, len(prompt.tokens), max_tokens))
        first = len(prompt.tokens) * self._token_s / 10
        arrivals = tuple((first + index * self._token_s, 1) for index in range(max_tokens))
        return StreamRecord(
            started=0.0, arrivals=arrivals, prompt_tokens=len(prompt.tokens), completion_tokens=max_tokens
        )


class CountedPrompts:
    def make_many(self, count: int, num_tokens: int) -> list[Prompt]:
        return [Prompt(text="x", tokens=tuple(range(num_tokens))) for _ in range(count)]

    def make(self, num_tokens: int) -> Prompt:
        return self.make_many(1, num_tokens)[0]


async def measure(work: Work) -> tuple[Samples, list[tuple[str, int, int]], list[str]]:
    log: list[tuple[str, int, int]] = []
    said: list[str] = []
    arms: Sequence[ClockworkArm] = [ClockworkArm("slow", 0.02, log), ClockworkArm("fast", 0.01, log)]
    return await run_rounds(arms, CountedPrompts(), work, said.append), log, said


async def test_every_round_gives_every_arm_one_sample_of_each_load() -> None:
    samples, _, said = await measure(Work(num_streams=(1, 2), max_tokens=5, rounds=3, prefill_repeats=2))
    assert set(samples.decode) == {("slow", 1), ("slow", 2), ("fast", 1), ("fast", 2)}
    assert {len(rates) for rates in samples.decode.values()} == {3}
    assert {name: len(rates) for name, rates in samples.prefill.items()} == {"slow": 3, "fast": 3}
    assert said[0] == "round 1 of 3: slow, 1 streams"


async def test_rates_and_ratios_are_those_of_the_arms() -> None:
    samples, _, _ = await measure(Work(num_streams=(2,), max_tokens=5, rounds=2, prefill_prompt_tokens=100))
    assert samples.decode["fast", 2] == [pytest.approx(200.0)] * 2
    assert samples.decode_ratio("fast", "slow", 2).median == pytest.approx(2.0)
    assert samples.prefill["slow"] == [pytest.approx(500.0)] * 2
    assert samples.prefill_ratio("fast", "slow").median == pytest.approx(2.0)


async def test_arms_take_turns_in_going_first() -> None:
    _, log, _ = await measure(Work(num_streams=(1,), max_tokens=2, rounds=2, prefill_repeats=0))
    assert [name for name, _, _ in log] == ["slow", "fast", "fast", "slow"]


async def test_prefill_asks_for_one_token_of_a_long_prompt() -> None:
    work = Work(num_streams=(1,), max_tokens=2, rounds=1, prefill_prompt_tokens=512, prefill_repeats=1)
    _, log, _ = await measure(work)
    assert log == [("slow", 64, 2), ("fast", 64, 2), ("slow", 512, 1), ("fast", 512, 1)]


def test_turning_keeps_all_arms() -> None:
    arms = [ClockworkArm(name, 1.0, []) for name in "abc"]
    assert [[arm.name for arm in turned(arms, turn)] for turn in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
