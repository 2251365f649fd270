"""Ranks for exactness: loaded once for a model and a number of ranks, used by one engine after the other."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.engine_arm import PAGE_SIZE, EngineShape, rank_specs
from bench.local_group import EventListener, LocalGroup, all_ended, unheard
from bench.shared_ranks import SharedRanks, Verdict, as_it_is
from scheduler.engine.config import EngineConfig
from scheduler.messages import Submission
from workers.executors import ProcessExecutor

RUN_TIMEOUT_S = 600.0
IDLE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactRanks:
    """`limits` has the ranks' whole pool and arena: what an engine with room for everything is made with."""

    ranks: SharedRanks
    limits: EngineConfig

    @contextlib.asynccontextmanager
    async def engine(
        self,
        config: EngineConfig,
        verdict: Verdict = as_it_is,
        on_event: EventListener = unheard,
    ) -> AsyncIterator[LocalGroup]:
        """A new engine on these ranks. It must come to rest with everything free."""
        async with LocalGroup.running(config, self.ranks.turn(verdict), on_event=on_event) as group:
            yield group
            await group.until(group.is_idle, IDLE_TIMEOUT_S)
            group.check()
        self.ranks.end_turn()

    async def solo(self, submission: Submission) -> list[int]:
        """Its tokens when nobody else is there. Raises `StreamError` when it does not end in full."""
        async with self.engine(replace(self.limits, max_running=1)) as group:
            stream = group.submit(submission)
            await all_ended([stream], RUN_TIMEOUT_S, group.describe)
        return stream.choices[0].tokens


@contextlib.asynccontextmanager
async def exact_ranks(model_dir: Path, shape: EngineShape, max_model_len: int) -> AsyncIterator[ExactRanks]:
    """Ranks as processes of their own, with one rank too."""
    executor = await ProcessExecutor.start(rank_specs(model_dir, shape, max_model_len))
    ranks = SharedRanks(executor)
    limits = EngineConfig(
        group_id="exactness",
        num_pages=shape.num_pages,
        arena_pages=shape.arena_pages,
        page_size=PAGE_SIZE,
        max_running=64,
        max_step_tokens=512,
        max_model_len=max_model_len,
    )
    try:
        yield ExactRanks(ranks=ranks, limits=limits)
    finally:
        await ranks.stop()
