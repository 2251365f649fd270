"""Ranks for exactness: loaded once for a model and a number of ranks, used by one engine after the other."""

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.engine_arm import PAGE_SIZE, EngineShape, rank_specs
from bench.exactness.spoil import arena_path, flip_bit
from bench.local_group import EventListener, LocalGroup, unheard
from bench.shared_ranks import SharedRanks, Verdict, as_it_is
from bench.streams import StreamError
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
    arena_paths: tuple[Path, ...] = ()
    solos: dict[Submission, list[int]] = field(default_factory=dict)

    def spoil_slot(self, slot: int) -> None:
        """Change a byte of what lies in an arena slot, on one rank or the other."""
        flip_bit(self.arena_paths[slot % len(self.arena_paths)], slot, at=slot * 97)

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
        """Its tokens when nobody else is there; the same request is run once. Raises `StreamError`."""
        if submission not in self.solos:
            async with self.engine(replace(self.limits, max_running=1)) as group:
                stream = group.submit(submission)
                await group.ended([stream], RUN_TIMEOUT_S)
            if not stream.is_whole:
                raise StreamError(f"{submission.request_id} did not end in full alone: {stream.choices[0].error}")
            self.solos[submission] = stream.choices[0].tokens
        return self.solos[submission]


@contextlib.asynccontextmanager
async def exact_ranks(model_dir: Path, shape: EngineShape, max_model_len: int) -> AsyncIterator[ExactRanks]:
    """Ranks as processes of their own, with one rank too."""
    specs = rank_specs(model_dir, shape, max_model_len)
    prefix = f"bench-{secrets.token_hex(8)}"
    executor = await ProcessExecutor.start([replace(spec, arena_prefix=prefix) for spec in specs])
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
        paths = tuple(arena_path(prefix, spec.rank) for spec in specs)
        yield ExactRanks(ranks=ranks, limits=limits, arena_paths=paths)
    finally:
        await ranks.stop()
