"""Gaps between tokens: which count as during a copy, their percentiles, and a whole measurement over fakes."""

import pytest

from bench.copies.gaps import CopyTimes, GapMeter, GapSamples, GapWork, gaps_between, percentile
from bench.local_group import LocalGroup
from bench.prompts import Prompt
from bench.streams import StreamError
from scheduler.engine.config import EngineConfig
from scheduler.messages import Finished, FinishReason, Parked, ParkMode, Restored
from tests.engine_events import LOAD, parked
from tests.fakes import FakeExecutor, FakeRanks


@pytest.mark.parametrize(
    ("share", "value"), [(0.99, 99.0), (0.5, 50.0), (1.0, 100.0), (0.001, 1.0)], ids=["p99", "p50", "p100", "least"]
)
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(share: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_one_value_is_every_percentile_of_itself_and_none_has_none() -> None:
    assert percentile([4.0], 0.99) == 4.0
    with pytest.raises(StreamError, match="at least one"):
        percentile([], 0.99)


def test_a_gap_belongs_to_every_window_that_it_touches() -> None:
    arrivals = [(1.0, 1), (2.0, 1), (4.0, 2), (4.5, 1), (9.0, 1)]
    assert list(gaps_between(arrivals, 1.5, 4.2)) == [(1.0, 2.0), (2.0, 4.0), (4.0, 4.5)]
    assert list(gaps_between(arrivals, 5.0, 6.0)) == [(4.5, 9.0)]
    assert list(gaps_between(arrivals, 9.0, 10.0)) == []


@pytest.mark.parametrize(
    ("gap", "counts"),
    [
        ((8.5, 9.0), True),
        ((0.0, 8.01), True),
        ((9.99, 90.0), True),
        ((0.0, 90.0), True),
        ((7.0, 8.0), False),
        ((10.0, 11.0), False),
    ],
    ids=[
        "inside",
        "from before",
        "till after",
        "a stall far longer than the copy",
        "ends with its start",
        "begins late",
    ],
)
def test_a_gap_counts_wherever_in_it_the_copy_lies(gap: tuple[float, float], counts: bool) -> None:
    assert CopyTimes(spans=[(8.0, 10.0), (300.0, 301.0)]).overlap(*gap) is counts


def test_a_copy_lasts_the_seconds_it_took_and_a_drop_none() -> None:
    times = CopyTimes()
    times.hear(parked(LOAD, copy_s=2.0), 10.0)
    times.hear(Restored(load=LOAD, request_id="r", mode=ParkMode.COPY, copy_s=1.0), 20.0)
    times.hear(Restored(load=LOAD, request_id="r", mode=ParkMode.RECOMPUTE), 30.0)
    times.hear(Finished(load=LOAD, request_id="r", num_tokens=1, reason=FinishReason.STOP), 40.0)
    assert times.spans == [(8.0, 10.0), (19.0, 20.0)]


class CountedPrompts:
    def make(self, num_tokens: int) -> Prompt:
        return Prompt(text="x", tokens=tuple(range(num_tokens)))


class SlowCopies(CopyTimes):
    """Fakes copy in no time; here each took a millisecond, so that gaps fall into them."""

    def hear(self, event: object, now: float) -> None:
        if isinstance(event, Parked | Restored):
            self.spans.append((now - 0.001, now + 0.001))


class TimelessCopies(CopyTimes):
    def hear(self, event: object, now: float) -> None:
        """None takes any time."""


CONFIG = EngineConfig(
    group_id="g", num_pages=900, arena_pages=900, page_size=4, max_running=8, max_step_tokens=64, max_model_len=1500
)


async def measured(copies: CopyTimes) -> GapSamples:
    executor = FakeExecutor(FakeRanks(num_pages=900, arena_pages=900, page_size=4))
    work = GapWork(windows=2, window_s=0.05, streams=2, large_tokens=40, prompt_tokens=4)
    async with LocalGroup.running(CONFIG, executor, on_event=copies.hear) as group:
        samples = await GapMeter(group, CountedPrompts(), work, copies).measure()
        await group.until(group.is_idle, 5.0)
        group.check()
    return samples


async def test_windows_take_turns_and_the_large_one_moves_only_in_those_with_copies() -> None:
    samples = await measured(SlowCopies())
    assert len(samples.with_copies) == len(samples.without) == len(samples.num_gaps) == 2
    assert samples.num_copies >= 4
    assert all(gap > 0 for gap in samples.with_copies + samples.without)


async def test_copies_that_no_gap_overlaps_are_nothing_to_judge() -> None:
    with pytest.raises(StreamError, match="with copies had no gap"):
        await measured(TimelessCopies())
