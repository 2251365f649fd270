"""The engine's own plans on a real rank: none is refused, and every stream has the tokens of its solo run."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest

from scheduler.engine.config import EngineConfig
from scheduler.engine.core import EngineCore
from scheduler.engine.loop import EngineLoop
from scheduler.messages import (
    Admit,
    Cancel,
    EngineEvent,
    Finished,
    FinishReason,
    Park,
    Parked,
    ParkMode,
    ParkReason,
    Restore,
    Submission,
    TokenEvent,
)
from scheduler.sampling import SamplingParams, StopRules
from tests.tiny_models import TinyModel, write_tiny_model
from tests.workers.executors.running import PATIENCE_S, spec_of
from workers.collective.single import SingleCollective
from workers.executors import LocalExecutor
from workers.rank import Rank
from workers.spec import RankSpec

NUM_TOKENS = 40


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RankSpec:
    folder = write_tiny_model(tmp_path_factory.mktemp("models") / "llama", TinyModel())
    return replace(spec_of(folder, 1, "single"), num_pages=64, arena_pages=5, max_running=10)


def submission(name: str, text: int, seed: int, n: int = 1) -> Submission:
    """`text` numbers the prompt; they have 20, 27, 34, ... tokens."""
    prompt = tuple(random.Random(text).choices(range(3, 250), k=20 + 7 * text))
    sampling = SamplingParams(temperature=1.0, seed=seed, repetition_penalty=1.1)
    stop = StopRules(max_tokens=NUM_TOKENS, ignore_eos=True)
    return Submission(request_id=name, gateway_id="g", prompt_tokens=prompt, sampling=sampling, stop=stop, n=n)


class Group:
    """Stands for admission and the gateway: what was parked by order is restored at its next chance."""

    def __init__(self, spec: RankSpec) -> None:
        config = EngineConfig(
            group_id="g",
            num_pages=spec.num_pages,
            arena_pages=spec.arena_pages,
            page_size=spec.page_size,
            max_running=spec.max_running,
            max_step_tokens=spec.max_step_tokens,
            max_model_len=spec.max_model_len,
        )
        executor = LocalExecutor(lambda on_copy: Rank(spec, SingleCollective(), on_copy))
        self.loop = EngineLoop(EngineCore(config), executor, self._take_tokens, self._take_event)
        self.streams: dict[tuple[str, int], list[int]] = {}
        self.modes: list[ParkMode] = []
        self._numbers = count(1)
        self._running: dict[str, asyncio.Event] = {}
        self._parking: set[str] = set()
        self._chance = random.Random(7)
        self._first = ["family", "a"]

    async def run(self, *submissions: Submission) -> None:
        """To the end of all of them."""
        ended = [asyncio.Event() for _ in submissions]
        self._running |= {one.request_id: event for one, event in zip(submissions, ended, strict=True)}
        for one in submissions:
            self.loop.post(Admit(number=next(self._numbers), submission=one))
        await asyncio.wait_for(asyncio.gather(*(event.wait() for event in ended)), PATIENCE_S)

    def shake(self) -> None:
        """Park one of the running by order; rarely, end it."""
        able = sorted(self._running.keys() - self._parking)
        if able:
            name = self._first.pop() if self._first else self._chance.choice(able)
            if name.startswith("passing") and self._chance.random() < 0.1:
                self.loop.post(Cancel(number=next(self._numbers), request_id=name))
            else:
                self._parking.add(name)
                self.loop.post(Park(number=next(self._numbers), request_id=name, reason=ParkReason.EXPLICIT))

    def _take_tokens(self, batch: Mapping[str, list[TokenEvent]]) -> None:
        for event in batch["g"]:
            self.streams.setdefault((event.request_id, event.choice), []).extend(event.tokens)
            assert event.finish is not FinishReason.ERROR, event.error

    def _take_event(self, event: EngineEvent) -> None:
        if isinstance(event, Parked):
            self.modes.append(event.mode)
            self._parking.discard(event.request_id)
            self.loop.post(Restore(number=next(self._numbers), request_id=event.request_id))
        elif isinstance(event, Finished):
            self._parking.discard(event.request_id)
            self._running.pop(event.request_id).set()


@asynccontextmanager
async def running(spec: RankSpec) -> AsyncIterator[Group]:
    group = Group(spec)
    task = asyncio.create_task(group.loop.run())
    try:
        yield group
    finally:
        await group.loop.stop()
        await task


async def test_random_parks_and_recomputes_of_requests_and_families_change_no_token(spec: RankSpec) -> None:
    """The arena holds no family and few others: those parks drop pages, most others copy them."""
    singles = {"a": (4, 9), "b": (3, 8), "c": (2, 7)}
    solo = [*singles.values(), *((5, 40 + choice) for choice in range(3))]
    async with running(spec) as group:
        for text, seed in solo:
            await group.run(submission(f"solo-{text}-{seed}", text, seed))
        alone, group.streams = group.streams, {}
        beside = [submission(name, text, seed) for name, (text, seed) in singles.items()]
        passing = [submission(f"passing-{number}", number, number) for number in range(2)]
        together = asyncio.ensure_future(group.run(submission("family", 5, 40, n=3), *beside, *passing))
        while not together.done():
            group.shake()
            for _ in range(8):  # steps, of which at least one computes something
                await group.loop.probe()
        await together
    expected = {(name, 0): alone[f"solo-{text}-{seed}", 0] for name, (text, seed) in singles.items()}
    expected |= {("family", choice): alone[f"solo-5-{40 + choice}", 0] for choice in range(3)}
    assert {key: tokens for key, tokens in group.streams.items() if "passing" not in key[0]} == expected
    assert {len(tokens) for tokens in expected.values()} == {NUM_TOKENS}
    assert set(group.modes) == {ParkMode.COPY, ParkMode.RECOMPUTE}
