"""Plans through an executor, stage after stage, with the ends of their copies awaited in between."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from scheduler.executor import Executor
from scheduler.plan import CopyResult, StepPlan, StepResult
from workers.executors import ProcessExecutor, new_collective_spec, specs_of_group
from workers.spec import RankSpec

PATIENCE_S = 60


def spec_of(model_dir: Path, world_size: int, kind: str = "shm", backend: str = "numba") -> RankSpec:
    return RankSpec(
        model_dir=str(model_dir),
        rank=0,
        world_size=world_size,
        collective=new_collective_spec(kind, timeout_s=120),
        num_pages=12,
        arena_pages=4,
        max_model_len=256,
        max_step_tokens=64,
        max_running=4,
        backend=backend,
        arena_prefix=f"test-{secrets.token_hex(6)}",
    )


@asynccontextmanager
async def running(spec: RankSpec) -> AsyncIterator[ProcessExecutor]:
    executor = await ProcessExecutor.start(specs_of_group(spec))
    try:
        yield executor
    finally:
        await executor.stop()


class Copies(asyncio.Queue[CopyResult]):
    """What a listener was told of copies, in order."""

    @classmethod
    def of(cls, executor: Executor) -> "Copies":
        copies = cls()
        executor.listen(copies.put_nowait)
        return copies

    async def next(self) -> CopyResult:
        return await asyncio.wait_for(self.get(), PATIENCE_S)


async def run_stages(
    executor: Executor, stages: Sequence[Sequence[StepPlan]]
) -> tuple[list[StepResult], list[CopyResult]]:
    """All plans of a stage are in flight at once."""
    copies, results, ends = Copies.of(executor), [], []
    for stage in stages:
        pending = [executor.submit(plan) for plan in stage]
        results += [await result for result in pending]
        for plan in stage:
            for _ in (*plan.copies_out, *plan.copies_in):
                ends.append(await copies.next())
    return results, ends


def ranks_alive() -> set[psutil.Process]:
    """Spawned children of this process; multiprocessing's own resource tracker stays and is not one."""
    return {child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())}


def shared_memory(spec: RankSpec) -> set[str]:
    """Names of what this group has under /dev/shm."""
    collective = Path(spec.collective.shm_path).name  # "" where it has no file
    names = {path.name for path in Path("/dev/shm").iterdir()}
    return {name for name in names if spec.arena_prefix in name or name == collective}
