"""Ranks that outlive engines: each engine counts from 0, copies end in order, and verdicts reach the engine alone."""

import asyncio
from dataclasses import replace

import pytest

from bench.shared_ranks import SharedRanks
from scheduler.executor import ExecutorFailed
from scheduler.plan import Chunk, CopyIn, CopyOut, CopyOutcome, CopyResult, NewSequence, PageGrant, StepPlan
from scheduler.sampling import SamplingParams
from tests.fakes import FakeExecutor, FakeRanks


def ranks(*, hold: bool = False) -> FakeExecutor:
    return FakeExecutor(FakeRanks(num_pages=8, arena_pages=8, page_size=4), hold=hold)


def plan(step: int, **changes: object) -> StepPlan:
    return replace(StepPlan(step=step), **changes)


NEW = NewSequence(seq_id=0, tokens=(1, 2, 3, 4), num_prompt_tokens=4, sampling=SamplingParams())
BEGIN = plan(
    0,
    new=(NEW,),
    grants=(PageGrant(seq_id=0, page_ids=(5,)),),
    chunks=(Chunk(seq_id=0, start=0, num_tokens=4, sample=True),),
)
OUT = plan(1, copies_out=(CopyOut(copy_id=0, page_ids=(5,), arena_ids=(2,)),))


async def test_every_turn_counts_steps_and_copies_from_zero_and_the_ranks_go_on() -> None:
    executor = ranks()
    shared = SharedRanks(executor)
    ends: list[CopyResult] = []
    for _ in range(2):
        turn = shared.turn()
        turn.listen(ends.append)
        answers = [await turn.submit(BEGIN), await turn.submit(OUT)]
        assert [answer.step for answer in answers] == [0, 1]
        await asyncio.sleep(0)
        await turn.submit(plan(2, finished=(0,), freed_arena_ids=(2,)))
        shared.end_turn()
    assert [end.copy_id for end in ends] == [0, 0]
    assert [sent.step for sent in executor.ranks.plans] == [0, 1, 2, 3, 4, 5]
    await shared.stop()
    assert executor.num_stops == 1


async def test_a_verdict_changes_what_the_engine_is_told() -> None:
    shared = SharedRanks(ranks())
    seen: list[CopyIn | CopyOut] = []
    told: asyncio.Future[CopyResult] = asyncio.get_running_loop().create_future()

    def verdict(result: CopyResult, order: CopyIn | CopyOut) -> CopyResult:
        seen.append(order)
        return replace(result, outcome=CopyOutcome.FAILED)

    turn = shared.turn(verdict)
    turn.listen(told.set_result)
    await turn.submit(BEGIN)
    await turn.submit(OUT)
    assert (await told).outcome is CopyOutcome.FAILED
    assert seen == list(OUT.copies_out)


async def test_a_stopped_turn_leaves_the_ranks_running() -> None:
    executor = ranks()
    await SharedRanks(executor).turn().stop()
    assert executor.num_stops == 0


async def test_the_loss_of_the_ranks_reaches_every_plan_in_flight() -> None:
    executor = ranks(hold=True)
    turn = SharedRanks(executor).turn()
    answer = turn.submit(BEGIN)
    executor.fail("rank 0 is gone")
    with pytest.raises(ExecutorFailed, match="rank 0 is gone"):
        await answer


async def test_a_plan_nobody_waits_for_any_more_is_answered_in_silence() -> None:
    executor = ranks(hold=True)
    turn = SharedRanks(executor).turn()
    answer = turn.submit(BEGIN)
    answer.cancel()
    executor.answer()
    for _ in range(3):
        await asyncio.sleep(0)
    assert answer.cancelled()
