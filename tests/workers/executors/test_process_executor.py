"""Ranks as processes: they agree, they die together, and nothing of them stays."""

import asyncio
import os
import signal
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path

import psutil
import pytest

from scheduler.executor import ExecutorFailed
from scheduler.plan import CopyOutcome, CopyResult, StepResult
from tests.tiny_models import TinyModel, write_tiny_model
from tests.workers.collective.groups import RankProcess
from tests.workers.executors.plans import plans, stages
from tests.workers.executors.running import ranks_alive, run_stages, running, shared_memory, spec_of
from tests.workers.executors.targets import start_and_hang
from workers.arena.sweep import sweep_dead_segments
from workers.collective.single import SingleCollective
from workers.executors import LocalExecutor, ProcessExecutor, new_collective_spec, specs_of_group
from workers.rank import Rank
from workers.spec import CollectiveSpec


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "llama", TinyModel())


async def alone(model_dir: Path, backend: str) -> tuple[list[StepResult], list[CopyResult]]:
    spec = spec_of(model_dir, 1, "single", backend)
    executor = LocalExecutor(lambda on_copy: Rank(spec, SingleCollective(), on_copy))
    told = await run_stages(executor, stages(park=True))
    await executor.stop()
    await executor.stop()
    return told


def timeless(results: Iterable[StepResult]) -> list[StepResult]:
    return [replace(result, step_s=0.0) for result in results]


@pytest.mark.parametrize(("kind", "backend"), [("shm", "numba"), ("shm", "sdpa"), ("gloo", "numba")])
async def test_two_rank_processes_draw_the_tokens_of_one_rank_through_park_and_restore(
    model_dir: Path, kind: str, backend: str
) -> None:
    told: list[str] = []
    executor = await ProcessExecutor.start(
        specs_of_group(spec_of(model_dir, 2, kind, backend)), on_progress=told.append
    )
    pids = executor.pids
    try:
        results, ends = await run_stages(executor, stages(park=True))
    finally:
        await executor.stop()
        await executor.stop()
    expected, expected_ends = await alone(model_dir, backend)
    assert timeless(results) == timeless(expected)
    # The pages of one rank that has all heads weigh as much as those of both together.
    assert [(end.copy_id, end.outcome, end.num_bytes) for end in ends] == [
        (end.copy_id, CopyOutcome.DONE, end.num_bytes) for end in expected_ends
    ]
    assert all(end.num_bytes > 0 and end.seconds > 0 for end in ends)
    assert told[-1] == "2 of 2 ranks ready"
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_a_killed_rank_fails_the_group_and_the_other_ends_too(model_dir: Path) -> None:
    spec = spec_of(model_dir, 2)
    async with running(spec) as executor:
        survivor = executor._processes[0]
        os.kill(executor.pids[1], signal.SIGKILL)
        with pytest.raises(ExecutorFailed, match="rank 1"):
            for plan in plans(park=False):
                await executor.submit(plan)
        ended = await asyncio.to_thread(wait, [survivor.sentinel], 20)
        assert ended == [survivor.sentinel]
    assert shared_memory(spec) == set()


async def test_a_rank_that_cannot_load_fails_the_start_with_its_reason_and_leaves_nothing(tmp_path: Path) -> None:
    spec = replace(spec_of(tmp_path, 1, "single"), model_dir=str(tmp_path / "nothing-here"))
    before = ranks_alive()
    with pytest.raises(ExecutorFailed, match=r"rank 0 failed while it loaded: .*nothing-here"):
        await ProcessExecutor.start(specs_of_group(spec))
    assert ranks_alive() == before


def test_ranks_die_with_a_killed_parent(model_dir: Path) -> None:
    spec = spec_of(model_dir, 2)
    # Not a daemon: daemons may not have children.
    parent = RankProcess(start_and_hang, 0, spec, daemon=False)
    try:
        ranks = [psutil.Process(pid) for pid in parent.result(300)]
        parent.kill()
        _, alive = psutil.wait_procs(ranks, timeout=10)
        assert alive == []
        sweep_dead_segments()  # as the next rank on this node does
        assert shared_memory(spec) == set()
    finally:
        parent.end()


async def test_ranks_reaped_by_somebody_else_are_no_trouble_to_stop(model_dir: Path) -> None:
    async with running(spec_of(model_dir, 1, "single")) as executor:
        (pid,) = executor.pids
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # noqa: ASYNC222  # before the loop sees the death and reaps it itself


async def test_specs_that_are_no_group_are_refused(model_dir: Path) -> None:
    spec = spec_of(model_dir, 2)
    with pytest.raises(ValueError, match=r"\[\(0, 2\)\] are not the ranks of one group"):
        await ProcessExecutor.start([spec])


def test_new_collective_specs_do_not_collide() -> None:
    one, other = new_collective_spec("shm"), new_collective_spec("shm")
    assert one.shm_path != other.shm_path
    address, _, port = new_collective_spec("gloo").init_method.rpartition(":")
    assert address == "tcp://127.0.0.1"
    # Not one that the system may hand to a stranger before rank 0 listens on it.
    assert 20_000 <= int(port) < 32_768
    assert new_collective_spec("single") == CollectiveSpec(kind="single")
