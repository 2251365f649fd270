"""The engine and its ranks without Ray, HTTP or text: what the way to a client is measured against."""

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.prompts import Prompt
from bench.streams import StreamError, StreamRecord
from scheduler.engine.config import EngineConfig
from scheduler.engine.core import EngineCore
from scheduler.engine.loop import EngineLoop
from scheduler.executor import Executor, ExecutorFailed
from scheduler.messages import Admit, EngineEvent, FinishReason, Submission, TokenEvent
from scheduler.sampling import SamplingParams, StopRules
from workers.executors import ProcessExecutor, new_collective_spec, specs_of_group
from workers.spec import RankSpec

GATEWAY_ID = "bench"
PAGE_SIZE = 16
MAX_RUNNING = 64
MAX_STEP_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """An arm's `pool_tokens` must hold all its streams at once: nothing is parked there. `arena_tokens` of host RAM."""

    world_size: int
    num_threads: int
    pool_tokens: int
    arena_tokens: int = 0
    park: bool = True

    @property
    def num_pages(self) -> int:
        return -(-self.pool_tokens // PAGE_SIZE)

    @property
    def arena_pages(self) -> int:
        return -(-self.arena_tokens // PAGE_SIZE)


@dataclass(slots=True)
class _Open:
    """A stream under way."""

    arrivals: list[tuple[float, int]] = field(default_factory=list)
    last: TokenEvent | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class EngineArm:
    """Submits as admission would, when there is room for all: every request is admitted at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop: EngineLoop | None = None
        self._open: dict[str, _Open] = {}
        self._numbers = itertools.count(1)

    def on_tokens(self, batches: Mapping[str, list[TokenEvent]]) -> None:
        now = time.perf_counter()
        for event in batches.get(GATEWAY_ID, ()):
            stream = self._open[event.request_id]
            if event.tokens:
                stream.arrivals.append((now, len(event.tokens)))
            if event.finish is not None:
                stream.last = event
                stream.ended.set()

    def on_event(self, event: EngineEvent) -> None:
        """Admission's news; nobody decides anything here."""

    async def stream(self, prompt: Prompt, max_tokens: int) -> StreamRecord:
        assert self.loop is not None
        request_id = uuid.uuid4().hex
        stream = self._open[request_id] = _Open()
        submission = Submission(
            request_id=request_id,
            gateway_id=GATEWAY_ID,
            prompt_tokens=prompt.tokens,
            sampling=SamplingParams(temperature=0.0),
            stop=StopRules(max_tokens=max_tokens, ignore_eos=True),
        )
        started = time.perf_counter()
        self.loop.post(Admit(number=next(self._numbers), submission=submission))
        await stream.ended.wait()
        del self._open[request_id]
        assert stream.last is not None
        num_tokens = sum(count for _, count in stream.arrivals)
        if stream.last.finish is not FinishReason.LENGTH or num_tokens != max_tokens:
            raise StreamError(f"{self.name}: {num_tokens} of {max_tokens} tokens came: {stream.last.error}")
        return StreamRecord(
            started=started,
            arrivals=tuple(stream.arrivals),
            prompt_tokens=len(prompt.tokens),
            completion_tokens=num_tokens,
        )


def rank_specs(model_dir: Path, shape: EngineShape, max_model_len: int = 8192) -> tuple[RankSpec, ...]:
    """The same settings as `parkade serve` has by default."""
    return specs_of_group(
        RankSpec(
            model_dir=str(model_dir),
            rank=0,
            world_size=shape.world_size,
            collective=new_collective_spec("single" if shape.world_size == 1 else "shm"),
            num_pages=shape.num_pages,
            arena_pages=shape.arena_pages,
            page_size=PAGE_SIZE,
            max_model_len=max_model_len,
            max_step_tokens=MAX_STEP_TOKENS,
            max_running=MAX_RUNNING,
            num_threads=shape.num_threads,
        )
    )


def engine_config(group_id: str, shape: EngineShape, max_model_len: int) -> EngineConfig:
    return EngineConfig(
        group_id=group_id,
        num_pages=shape.num_pages,
        arena_pages=shape.arena_pages,
        park=shape.park,
        page_size=PAGE_SIZE,
        max_running=MAX_RUNNING,
        max_step_tokens=MAX_STEP_TOKENS,
        max_model_len=max_model_len,
    )


@contextlib.asynccontextmanager
async def engine_arm(name: str, model_dir: Path, shape: EngineShape) -> AsyncIterator[EngineArm]:
    """Ranks as processes of their own, the engine's loop in this one."""
    specs = rank_specs(model_dir, shape)
    executor = await ProcessExecutor.start(specs)
    async with driven(name, executor, engine_config(name, shape, specs[0].max_model_len)) as arm:
        yield arm


@contextlib.asynccontextmanager
async def driven(name: str, executor: Executor, config: EngineConfig) -> AsyncIterator[EngineArm]:
    """An arm whose loop runs over `executor`, which is stopped at the end."""
    arm = EngineArm(name)
    arm.loop = EngineLoop(EngineCore(config), executor, arm.on_tokens, arm.on_event)
    running = asyncio.create_task(arm.loop.run())
    try:
        yield arm
    finally:
        await arm.loop.stop()
        # What it failed with has reached every open stream as an error.
        with contextlib.suppress(ExecutorFailed):
            await running
