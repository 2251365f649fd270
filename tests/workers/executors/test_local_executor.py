"""One rank in this process: its copies end on a thread of the rank's, and are told on the event loop."""

import asyncio
import threading

import pytest

from scheduler.executor import ExecutorFailed
from scheduler.plan import CopyOutcome, CopyResult, StepPlan
from tests.workers.executors.running import Copies
from tests.workers.link.fake_ranks import FakeCopyEnd, FakeRank, copying, plan
from workers.executors import LocalExecutor


def end_elsewhere(fake: FakeRank, *copy_ids: int) -> threading.Thread:
    """The copies end on another thread, as a rank's do."""

    def end() -> None:
        for copy_id in copy_ids:
            fake.end_copy(FakeCopyEnd(copy_id))

    thread = threading.Thread(target=end)
    thread.start()
    return thread


async def test_a_copy_is_told_on_the_loop_with_what_the_rank_says_of_it() -> None:
    fake = FakeRank(0)
    executor = LocalExecutor(fake.build)
    heard: asyncio.Queue[tuple[CopyResult, int]] = asyncio.Queue()
    executor.listen(lambda result: heard.put_nowait((result, threading.get_ident())))
    await executor.submit(copying(0, 2, 3))
    await asyncio.to_thread(fake.end_copy, FakeCopyEnd(3, CopyOutcome.CORRUPT, "slot 3 is wrong"))
    await asyncio.to_thread(fake.end_copy, FakeCopyEnd(2))
    told = [await asyncio.wait_for(heard.get(), 10) for _ in range(2)]
    await executor.stop()
    assert [result for result, _ in told] == [
        CopyResult(
            copy_id=3, outcome=CopyOutcome.CORRUPT, reason="rank 0: slot 3 is wrong", seconds=0.5, num_bytes=100
        ),
        CopyResult(copy_id=2, outcome=CopyOutcome.DONE, seconds=0.5, num_bytes=100),
    ]
    assert {thread for _, thread in told} == {threading.get_ident()}


async def test_results_of_earlier_plans_have_reached_who_awaits_them_when_a_copy_is_told() -> None:
    seen: list[str] = []

    def act(fake: FakeRank, step: StepPlan) -> None:
        if step.copies_out:
            end_elsewhere(fake, step.copies_out[0].copy_id).join()

    async def step(one: StepPlan) -> None:
        await executor.submit(one)
        seen.append(f"step {one.step}")

    fake = FakeRank(0, act)
    executor = LocalExecutor(fake.build)
    copies = asyncio.Event()

    def heard(result: CopyResult) -> None:
        seen.append(f"copy {result.copy_id}")
        copies.set()

    executor.listen(heard)
    for first in range(0, 100, 2):
        copies.clear()
        await asyncio.gather(step(plan(first, 1)), step(copying(first + 1, first)))
        await asyncio.wait_for(copies.wait(), 10)
        assert seen.index(f"step {first}") < seen.index(f"copy {first}")
    await executor.stop()


async def test_a_copy_that_ends_while_the_executor_stops_is_told_to_nobody() -> None:
    fake = FakeRank(0)
    fake_close = fake.close

    def close() -> None:
        end_elsewhere(fake, 2).join()  # as a copy thread that is waited for
        fake_close()

    fake.close = close  # type: ignore[method-assign]
    executor = LocalExecutor(fake.build)
    copies = Copies.of(executor)
    await executor.submit(copying(0, 2))
    await executor.stop()
    await executor.stop()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (copies.qsize(), fake.closed) == (0, 1)


async def test_after_a_failure_no_copy_is_told_any_more() -> None:
    def act(fake: FakeRank, step: StepPlan) -> None:
        if step.step == 1:
            raise ValueError("boom")

    fake = FakeRank(0, act)
    executor = LocalExecutor(fake.build)
    copies = Copies.of(executor)
    await executor.submit(copying(0, 2))
    with pytest.raises(ExecutorFailed, match="rank 0 failed in step 1: ValueError: boom"):
        await executor.submit(plan(1))
    end_elsewhere(fake, 2).join()
    with pytest.raises(ExecutorFailed, match="boom"):
        await executor.submit(plan(2))
    await executor.stop()
    assert copies.empty()


async def test_a_rank_that_cannot_be_built_raises_what_it_raised() -> None:
    def build(on_copy: object) -> FakeRank:
        raise FileNotFoundError("model.safetensors is missing")

    with pytest.raises(FileNotFoundError, match="is missing"):
        LocalExecutor(build)
