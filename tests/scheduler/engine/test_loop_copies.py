"""Copies in the loop: it sleeps while nothing else is under way, and an end of any kind is legal meanwhile."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from scheduler.executor import ExecutorFailed
from scheduler.messages import (
    Admit,
    FinishReason,
    Notice,
    Park,
    Parked,
    ParkReason,
    Restore,
)
from scheduler.plan import CopyOutcome, CopyResult
from tests.fakes import solo_run
from tests.scheduler.engine.rig import submission
from tests.scheduler.engine.stand import Stand


@pytest.fixture
async def held() -> AsyncIterator[Stand]:
    stand = Stand(hold=True, hold_copies=True, arena=8)
    yield stand
    stand.executor.fail("the test is over")
    await stand.loop.stop()
    await asyncio.gather(stand.task, return_exceptions=True)
    stand.core.check_integrity()
    assert stand.core.is_idle


async def test_a_loop_with_nothing_but_a_copy_under_way_sleeps_until_it_has_ended() -> None:
    stand = Stand(hold_copies=True, arena=8)
    stand.loop.post(Admit(number=1, submission=submission("a", max_tokens=30)))
    await asyncio.wait_for(stand.heard.wait(), 5)
    stand.loop.post(Park(number=2, request_id="a", reason=ParkReason.EXPLICIT))
    await stand.until_copying()
    looked = stand.num_now
    for _ in range(200):
        await asyncio.sleep(0)
    assert stand.num_now == looked and not any(isinstance(event, Parked) for event in stand.events)
    stand.executor.land_copies()
    await stand.until_event(Parked)
    stand.executor.hold_copies = False
    stand.loop.post(Restore(number=3, request_id="a"))
    await stand.until_finished("a")
    assert stand.tokens("a") == solo_run(submission("a").prompt_tokens, 0, 1000, 30)
    await stand.loop.stop()
    await stand.task


async def test_an_end_of_a_copy_that_came_with_an_answer_is_taken_after_it(held: Stand) -> None:
    """The last token that is owed is handed out before its sequence is out."""
    held.loop.post(Admit(number=1, submission=submission("a", max_tokens=30)))
    await held.until_due(2)
    held.loop.post(Park(number=2, request_id="a", reason=ParkReason.PRESSURE))
    for _ in range(2):
        held.executor.answer()
        await held.until_due(1)
    held.executor.answer()
    held.executor.land_copies()
    await held.until_event(Parked)
    assert [(len(event.tokens), event.notice) for event in held.said] == [(1, None), (1, None), (0, Notice.PARKED)]


@pytest.mark.parametrize("lost", [False, True])
async def test_a_stop_or_a_loss_during_a_copy_ends_its_request_and_a_late_end_of_it_is_nobodys(lost: bool) -> None:
    stand = Stand(hold_copies=True, arena=8)
    stand.loop.post(Admit(number=1, submission=submission("a", max_tokens=30)))
    await asyncio.wait_for(stand.heard.wait(), 5)
    stand.loop.post(Park(number=2, request_id="a", reason=ParkReason.PRESSURE))
    await stand.until_copying()
    if lost:
        stand.executor.fail("rank 1 died")
        probe = asyncio.create_task(stand.loop.probe())
        with pytest.raises(ExecutorFailed, match="rank 1 died"):
            await stand.task
        await asyncio.gather(probe, return_exceptions=True)
    else:
        await stand.loop.stop()
        await stand.task
    assert stand.said[-1].finish is FinishReason.ERROR
    stand.loop.on_copy(CopyResult(copy_id=0, outcome=CopyOutcome.DONE))
    stand.core.check_integrity()
    assert stand.core.is_idle and stand.core.account().pages_free == 16
