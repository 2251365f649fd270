"""Gaps between the tokens of streams that decode while a large sequence is copied out and in, again and again.

Windows with and without copies take turns. In a window without, the large sequence lies parked: nothing but the copies
differs. In a window with, every gap counts during any part of which a copy was under way: a stall counts wherever the
copy lies in it. Only between two copies the large sequence computes a token, which is its own business.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from bench.exactness.forced import has_tokens, park
from bench.local_group import GATEWAY_ID, LocalGroup, Stream
from bench.prompts import Prompt
from bench.streams import StreamError
from scheduler.messages import EngineEvent, Parked, Restored, Submission
from scheduler.sampling import SamplingParams, StopRules

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GapWork:
    """`windows` pairs of windows of `window_s`; `streams` decode beside a sequence of `large_tokens`."""

    windows: int = 8
    window_s: float = 6.0
    streams: int = 3
    large_tokens: int = 4000
    prompt_tokens: int = 64


@dataclass(slots=True)
class CopyTimes:
    """When a copy was under way on some rank, as half-open [start, end), by the clock of the group."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def hear(self, event: EngineEvent, now: float) -> None:
        if isinstance(event, Parked | Restored) and event.copy_s > 0:
            self.spans.append((now - event.copy_s, now))

    def overlap(self, start: float, end: float) -> bool:
        """Whether a copy was under way at some moment in [start, end)."""
        return any(copy_start < end and start < copy_end for copy_start, copy_end in self.spans)


@dataclass(slots=True)
class GapSamples:
    """p99 gaps in seconds, one a pair of windows, and how many gaps and copies there were in all."""

    with_copies: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    num_gaps: list[int] = field(default_factory=list)
    num_copies: int = 0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed. Raises `StreamError` where there is none."""
    if not values:
        raise StreamError("a percentile needs at least one value")
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def gaps_between(arrivals: Sequence[tuple[float, int]], start: float, end: float) -> Iterator[tuple[float, float]]:
    """(start, end) of each gap of which some part lies in [start, end]: one that is cut by an edge counts whole."""
    for (earlier, _), (later, _) in pairwise(arrivals):
        if earlier < end and start < later:
            yield earlier, later


class LargePrompts(Protocol):
    """Where prompts of an exact length come from."""

    def make(self, num_tokens: int) -> Prompt: ...


class GapMeter:
    """Streams on one group. `copies` must have heard every event of it."""

    def __init__(self, group: LocalGroup, prompts: LargePrompts, work: GapWork, copies: CopyTimes) -> None:
        self._group, self._prompts, self._work, self._copies = group, prompts, work, copies
        self._numbers = itertools.count(1)

    async def measure(self) -> GapSamples:
        """Raises `StreamError` when a window has no gap to count."""
        samples = GapSamples()
        work = self._work
        large = self._submit(work.large_tokens)
        await has_tokens(self._group, [large], 1)
        for number in range(work.windows):
            # Who is first turns.
            for copying in (True, False) if number % 2 else (False, True):
                await park(self._group, large)
                gaps = await self._window(large, copying=copying)
                (samples.with_copies if copying else samples.without).append(percentile(gaps, 0.99))
                if copying:
                    samples.num_gaps.append(len(gaps))
        samples.num_copies = len(self._copies.spans)
        self._group.cancel(large.request_id)
        await large.ended.wait()
        return samples

    async def _window(self, large: Stream, *, copying: bool) -> list[float]:
        group, work = self._group, self._work
        streams = [self._submit(work.prompt_tokens) for _ in range(work.streams)]
        await has_tokens(group, streams, 4)
        start = group.now()
        if copying:
            await self._move(large, start + work.window_s)
        else:
            await asyncio.sleep(work.window_s)
        end = group.now()
        # The gap in which the window ends has a length only once it has ended too.
        await group.until(lambda: all(_is_past(stream, end) for stream in streams), TIMEOUT_S)
        for stream in streams:
            group.cancel(stream.request_id)
        for stream in streams:
            await stream.ended.wait()
        gaps = [gap for stream in streams for gap in gaps_between(stream.arrivals, start, end)]
        counted = [later - earlier for earlier, later in gaps if not copying or self._copies.overlap(earlier, later)]
        if not counted:
            raise StreamError(f"a window of {work.window_s:g} s {'with' if copying else 'without'} copies had no gap")
        return counted

    async def _move(self, large: Stream, until: float) -> None:
        """Back and out again until it is time; parked at the end."""
        group = self._group
        while group.now() < until:
            group.unpark(large.request_id)
            await group.until(lambda: self._is_resident(large), TIMEOUT_S)
            await park(group, large)

    def _is_resident(self, large: Stream) -> bool:
        row = self._group.row(large.request_id)
        return row is None or row.state == "resident"

    def _submit(self, prompt_tokens: int) -> Stream:
        prompt = self._prompts.make(prompt_tokens)
        room = self._group.config.max_model_len - prompt_tokens
        return self._group.submit(
            Submission(
                request_id=f"gaps-{next(self._numbers)}",
                gateway_id=GATEWAY_ID,
                prompt_tokens=prompt.tokens,
                sampling=SamplingParams(temperature=0.0),
                stop=StopRules(max_tokens=room, ignore_eos=True),
            )
        )


def _is_past(stream: Stream, moment: float) -> bool:
    """A token has come after it, or none will."""
    return stream.ended.is_set() or stream.arrivals[-1][0] > moment
