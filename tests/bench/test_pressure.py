"""The pressure report: a good run holds every bar, and each thing that may go wrong misses its own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.chat import Chat, ChatRun, ChatState
from bench.pressure import PressureBench, make_report
from bench.pressure_chats import (
    ARMS,
    NO_PARK,
    PARKING,
    PARTS,
    RECOMPUTE,
    SERIAL,
    URGENT,
    PressureSamples,
    server_options,
)
from bench.prompts import Prompt
from bench.race import Race, texts_differing
from bench.small_streams import ANSWER_TOKENS, NUM_STREAMS, ROOM, TIGHT, SmallSamples, small_rounds
from bench.streams import StreamRecord

NAMES = tuple(PARTS["8k"].sizes)
BENCH = PressureBench(model="m", model_dir=Path("m"), rounds=1)


def run(name: str, *, parks: int = 0, recomputes: int = 0) -> ChatRun:
    urgent = name == URGENT
    return ChatRun(
        chat=Chat(name=name, question="?", max_tokens=9, priority=10 if urgent else 0),
        state=ChatState.DONE,
        status=200,
        text=f"text of {name}",
        completion_tokens=9,
        finish_reason="length",
        parks=0 if urgent else parks,
        recomputes=0 if urgent else recomputes,
        ended=5.0 if urgent else 9.0,
    )


def race(wall_s: float, *, parks: int = 0, recomputes: int = 0) -> Race:
    return Race(runs=tuple(run(name, parks=parks, recomputes=recomputes) for name in NAMES), wall_s=wall_s)


def refused() -> Race:
    runs = race(4.0).runs
    lost = replace(runs[0], state=ChatState.REFUSED, completion_tokens=4, text="te", error="the KV pool is full")
    return Race(runs=(lost, *runs[1:]), wall_s=4.0)


def good() -> PressureSamples:
    samples = PressureSamples()
    samples.races = {
        PARKING: [race(10.0, parks=1)],
        RECOMPUTE: [race(12.5, parks=1, recomputes=1)],
        SERIAL: [race(20.0)],
        NO_PARK: [refused()],
    }
    return samples


def missed(samples: PressureSamples) -> list[str]:
    return [bar.name for bar in make_report(BENCH, {"8k": samples}, None).bars if not bar.held]


def test_a_good_run_holds_and_gives_both_ratios() -> None:
    report = make_report(BENCH, {"8k": good()}, None)
    assert report.held
    ratios = {row.who: row.value.median for row in report.rows if row.unit == "ratio"}
    assert ratios == {f"{PARKING} / {RECOMPUTE}": pytest.approx(0.8), f"{PARKING} / {SERIAL}": pytest.approx(0.5)}
    assert report.facts["8k: what chats were told without parking"] == ["the KV pool is full"]


def cut(samples: PressureSamples) -> None:
    samples.races[PARKING][0].runs[1].completion_tokens = 8


def cut_serial(samples: PressureSamples) -> None:
    samples.races[SERIAL][0].runs[1].finish_reason = "stop"


def change(samples: PressureSamples) -> None:
    samples.races[RECOMPUTE][0].runs[1].text += "!"


def park_the_urgent(samples: PressureSamples) -> None:
    samples.races[PARKING][0].runs[NAMES.index(URGENT)].parks_seen = 1


def overtake(samples: PressureSamples) -> None:
    samples.races[RECOMPUTE][0].runs[0].ended = 1.0


def never_park(samples: PressureSamples) -> None:
    samples.races[PARKING] = [race(10.0)]


def drop_what_is_parked(samples: PressureSamples) -> None:
    samples.races[PARKING] = [race(12.5, parks=1, recomputes=1)]


def never_recompute(samples: PressureSamples) -> None:
    samples.races[RECOMPUTE] = [race(10.0, parks=1)]


@pytest.mark.parametrize(
    ("spoil", "bar"),
    [
        (cut, "8k, parking: chats that ended in full"),
        (cut_serial, "8k, one after another: chats that ended in full"),
        (change, "8k: chats with more than one text"),
        (park_the_urgent, "8k, parking: parks of the chat of priority 10"),
        (overtake, "8k, recompute only: rounds in which it ended first"),
        (never_park, "8k, parking: rounds with a park"),
        (drop_what_is_parked, "8k, parking: parks by recompute"),
        (never_recompute, "8k, recompute only: something was recomputed"),
    ],
)
def test_each_fault_misses_its_own_bar(spoil: Callable[[PressureSamples], None], bar: str) -> None:
    samples = good()
    spoil(samples)
    assert missed(samples) == [bar]


def test_failures_without_parking_are_told_and_no_bar() -> None:
    samples = good()
    samples.races[NO_PARK] = [race(4.0)]
    assert missed(samples) == []


def test_a_text_that_was_cut_is_compared_with_nothing() -> None:
    assert texts_differing([refused(), race(1.0)]) == []


@pytest.mark.parametrize("name", list(PARTS))
def test_four_chats_exceed_the_pool_and_one_does_not_exceed_the_model(name: str) -> None:
    part = PARTS[name]
    assert part.num_tokens > 1.3 * part.pool_tokens
    template = 100
    assert all(prompt + answer + template < part.max_model_len <= 8192 for prompt, answer in part.sizes.values())


@pytest.mark.parametrize("name", list(PARTS))
def test_the_urgent_chat_can_end_first_only_because_shorter_ones_are_parked(name: str) -> None:
    part = PARTS[name]
    answers = {chat: answer for chat, (_, answer) in part.sizes.items()}
    shorter = [chat for chat in answers if answers[chat] < answers[URGENT]]
    assert len(shorter) == 2
    # Whichever of them is parked first, the other is too before it ends: three residents outgrow the pool by then.
    for first in shorter:
        prompts = [prompt for chat, (prompt, _) in part.sizes.items() if chat != first]
        outgrown_at = (part.pool_tokens - sum(prompts)) / 3
        assert outgrown_at < min(answers[chat] for chat in shorter)


def test_a_scale_shrinks_everything_alike() -> None:
    part = PARTS["8k"].scaled(0.125)
    assert (part.pool_tokens, part.max_model_len, part.sizes["north"]) == (1024, 1024, (137, 262))
    assert server_options(part)[2:] == ["--kv-pool-tokens", "1024", "--max-model-len", "1024"]
    assert set(ARMS) == {PARKING, RECOMPUTE, SERIAL, NO_PARK}


def record(ended: float, gap: float = 1.0) -> StreamRecord:
    arrivals = ((1.0, 1), (1.0 + gap, 1), (ended, 298))
    return StreamRecord(started=0.0, arrivals=arrivals, prompt_tokens=64, completion_tokens=300)


def small(tight_s: float, *, rounds: int = BENCH.small_rounds) -> SmallSamples:
    samples = SmallSamples()
    for _ in range(rounds):
        samples.add(TIGHT, [record(tight_s, gap=3.0)] * NUM_STREAMS)
        samples.add(ROOM, [record(10.0)] * NUM_STREAMS)
    return samples


@pytest.mark.parametrize(("tight_s", "held"), [(14.0, True), (14.1, False)])
def test_the_small_streams_have_their_wall_time_bounded(tight_s: float, held: bool) -> None:
    report = make_report(BENCH, {}, small(tight_s))
    assert report.held is held
    silence = {row.who: row.value.median for row in report.rows if row.what.endswith("longest silence")}
    assert silence == {TIGHT: pytest.approx(tight_s - 4.0), ROOM: pytest.approx(8.0)}


@pytest.mark.parametrize(("rounds", "missed"), [(5, []), (4, ["small: pairs"])])
def test_a_ratio_of_few_pairs_says_nothing(rounds: int, missed: list[str]) -> None:
    report = make_report(BENCH, {}, small(12.0, rounds=rounds))
    assert [bar.name for bar in report.bars if not bar.held] == missed


def test_a_stream_that_ended_short_is_missing() -> None:
    samples = small(12.0)
    samples.num_ended[TIGHT] -= 1
    report = make_report(BENCH, {}, samples)
    assert [bar.name for bar in report.bars if not bar.held] == ["small: streams that ended in full"]


class TellingArm:
    def __init__(self, name: str, log: list[tuple[str, tuple[int, ...]]]) -> None:
        self.name, self._log = name, log

    async def stream(self, prompt: Prompt, max_tokens: int) -> StreamRecord:
        assert max_tokens == ANSWER_TOKENS
        self._log.append((self.name, prompt.tokens))
        return record(9.0)


class NumberedPrompts:
    count = 0

    def make_many(self, count: int, num_tokens: int) -> list[Prompt]:
        self.count += 1
        return [Prompt(text="x", tokens=(self.count, number)) for number in range(count)]


async def test_both_pools_get_the_same_prompts_in_turns_after_a_round_that_does_not_count() -> None:
    log: list[tuple[str, tuple[int, ...]]] = []
    samples = SmallSamples()
    arms = [TellingArm(TIGHT, log), TellingArm(ROOM, log)]
    await small_rounds(arms, NumberedPrompts(), samples, rounds=2, progress=lambda line: None)
    assert [len(samples.wall_s[name]) for name in (TIGHT, ROOM)] == [2, 2]
    firsts = [log[at][0] for at in range(0, len(log), 2 * NUM_STREAMS)]
    assert firsts == [ROOM, TIGHT, ROOM]
    for at in range(0, len(log), 2 * NUM_STREAMS):
        both = [prompt for _, prompt in log[at : at + 2 * NUM_STREAMS]]
        assert both[:NUM_STREAMS] == both[NUM_STREAMS:]
