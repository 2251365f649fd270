"""The engine's loop over an executor whose answers the test hands out."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from scheduler.engine import PlanMismatch
from scheduler.executor import ExecutorFailed
from scheduler.messages import (
    Admit,
    Cancel,
    Finished,
    FinishReason,
    Pressure,
)
from scheduler.plan import StepResult
from tests.fakes import solo_run
from tests.scheduler.engine.rig import submission
from tests.scheduler.engine.stand import Stand


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    stand = Stand()
    yield stand
    await stand.loop.stop()
    await asyncio.gather(stand.task, return_exceptions=True)
    stand.core.check_integrity()
    assert stand.core.is_idle and stand.executor.num_stops >= 1


@pytest.fixture
async def held() -> AsyncIterator[Stand]:
    stand = Stand(hold=True)
    yield stand
    stand.executor.fail("the test is over")
    await stand.loop.stop()
    await asyncio.gather(stand.task, return_exceptions=True)
    stand.core.check_integrity()
    assert stand.core.is_idle


async def test_a_request_runs_to_its_end(stand: Stand) -> None:
    sub = submission("a", max_tokens=9)
    stand.loop.post(Admit(number=1, submission=sub))
    finished = await stand.until_finished("a")
    assert finished.reason is FinishReason.LENGTH
    assert stand.tokens("a") == solo_run(sub.prompt_tokens, 0, 1000, 9)
    assert [event.finish for event in stand.said] == [None] * 8 + [FinishReason.LENGTH]


async def test_two_plans_are_in_flight_and_no_more(held: Stand) -> None:
    held.loop.post(Admit(number=1, submission=submission("a", max_tokens=9)))
    await held.until_due(2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert held.executor.num_due == 2 and held.executor.ranks.next_step == 2
    held.executor.answer()
    await held.until_due(1)
    await held.until_due(2)
    assert held.executor.ranks.next_step == 3 and len(held.tokens("a")) == 1


async def test_an_answer_is_handed_out_at_once_and_once(held: Stand) -> None:
    held.loop.post(Admit(number=1, submission=submission("a", max_tokens=9)))
    held.loop.post(Admit(number=2, submission=submission("b", max_tokens=9)))
    await held.until_due(2)
    held.executor.answer()
    await asyncio.wait_for(held.heard.wait(), 5)
    assert [event.request_id for event in held.said] == ["a", "b"]


async def test_a_cancel_wakes_the_loop_while_plans_are_in_flight(held: Stand) -> None:
    held.loop.post(Admit(number=1, submission=submission("a", max_tokens=9)))
    await held.until_due(2)
    held.loop.post(Cancel(number=2, request_id="a"))
    await asyncio.wait_for(held.heard.wait(), 5)
    assert [event.finish for event in held.said] == [FinishReason.CANCELLED]
    assert not any(isinstance(event, Finished) for event in held.events) and held.executor.num_due == 2


async def test_an_idle_loop_does_nothing_at_all(stand: Stand) -> None:
    stand.loop.post(Admit(number=1, submission=submission("a", max_tokens=2)))
    await stand.until_finished("a")
    for _ in range(20):
        await asyncio.sleep(0)
    looked = stand.num_now
    for _ in range(200):
        await asyncio.sleep(0)
    assert stand.num_now == looked


async def test_a_probe_of_an_idle_engine_makes_the_ranks_take_an_empty_step(stand: Stand) -> None:
    await asyncio.wait_for(asyncio.gather(stand.loop.probe(), stand.loop.probe()), 5)
    (plan,) = stand.executor.ranks.plans
    assert (plan.step, plan.chunks, plan.finished) == (0, (), ())
    stand.loop.post(Admit(number=1, submission=submission("a", max_tokens=2)))
    await stand.until_finished("a")


async def test_a_probe_of_a_busy_engine_waits_for_a_step_and_adds_none(held: Stand) -> None:
    held.loop.post(Admit(number=1, submission=submission("a", max_tokens=9)))
    await held.until_due(2)
    probe = asyncio.create_task(held.loop.probe())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not probe.done() and held.executor.num_due == 2
    held.executor.answer()
    await asyncio.wait_for(probe, 5)
    assert all(plan.chunks for plan in held.executor.ranks.plans)


async def test_ranks_that_are_long_at_work_are_well_and_those_that_do_not_answer_an_empty_step_are_not(
    held: Stand,
) -> None:
    with pytest.raises(TimeoutError, match=r"did not answer an empty step within 0.001 s"):
        await held.loop.probe(0.001)
    held.loop.post(Admit(number=1, submission=submission("a", max_tokens=9)))
    await held.until_due(2)
    with pytest.raises(TimeoutError, match="empty step"):
        await held.loop.probe(0.001)
    held.executor.answer()
    await held.until_due(2)
    await held.loop.probe(0.001)
    assert all(plan.chunks for plan in held.executor.ranks.plans[1:])


async def test_lost_ranks_fail_every_request_with_the_reason_and_later_ones_too(held: Stand) -> None:
    for number, name in enumerate("ab", start=1):
        held.loop.post(Admit(number=number, submission=submission(name, max_tokens=9)))
    await held.until_due(2)
    probe = asyncio.create_task(held.loop.probe())
    await asyncio.sleep(0)
    held.executor.fail("rank 1 died")
    with pytest.raises(ExecutorFailed, match="rank 1 died"):
        await held.task
    with pytest.raises(ExecutorFailed, match="rank 1 died"):
        await probe
    with pytest.raises(ExecutorFailed, match="rank 1 died"):
        await held.loop.probe()
    held.loop.post(Admit(number=3, submission=submission("c")))
    error = "the model's ranks are lost: rank 1 died"
    assert held.loop.failure == error
    assert [(event.request_id, event.finish, event.error) for event in held.said] == [
        (name, FinishReason.ERROR, error) for name in "abc"
    ]
    finished = [event for event in held.events if isinstance(event, Finished)]
    assert [(event.request_id, event.reason, event.error) for event in finished] == [
        (name, FinishReason.ERROR, error) for name in "abc"
    ]
    assert finished[1].load.pages_free == 16


async def test_an_answer_that_fits_no_plan_ends_the_loop_and_every_request(held: Stand) -> None:
    held.loop.post(Admit(number=1, submission=submission("a", max_tokens=9)))
    await held.until_due(2)
    held.executor.answer_with(StepResult(step=7))
    with pytest.raises(PlanMismatch, match="answered step 7; the oldest plan in flight is 0"):
        await held.task
    finished = await held.until_finished("a")
    assert finished.reason is FinishReason.ERROR and finished.load.pages_free == 16
    assert (
        held.said[-1].error
        == held.loop.failure
        == ("the engine has a fault: the ranks answered step 7; the oldest plan in flight is 0")
    )


async def test_a_stop_lets_what_is_in_flight_land_and_ends_the_rest(held: Stand) -> None:
    held.loop.post(Admit(number=1, submission=submission("a", max_tokens=9)))
    await held.until_due(2)
    stop = asyncio.create_task(held.loop.stop())
    await asyncio.sleep(0)
    held.executor.answer()
    held.executor.answer()
    await asyncio.wait_for(stop, 5)
    await held.task
    assert [len(event.tokens) for event in held.said] == [1, 1, 0]
    assert (held.said[-1].finish, held.said[-1].error) == (FinishReason.ERROR, "the engine was stopped")
    assert held.executor.num_stops == 1


async def test_a_stop_before_the_first_turn_is_clean() -> None:
    stand = Stand()
    await stand.loop.stop()
    await stand.task
    assert stand.executor.ranks.plans == [] and stand.loop.failure == "the engine was stopped"


async def test_a_sink_that_raises_harms_nobody(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    stand.loop._on_tokens = lambda batches: 1 / 0  # type: ignore[assignment]
    stand.loop.post(Admit(number=1, submission=submission("a", max_tokens=2)))
    await stand.until_finished("a")
    assert "tokens were not delivered" in caplog.text


async def test_a_total_stall_is_woken_by_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(pages=8, recompute=False)
    for number, name in enumerate("ab", start=1):
        stand.loop.post(Admit(number=number, submission=submission(name, max_tokens=17)))
    await stand.until_finished("b")  # the arena has no room for anybody
    assert any(isinstance(event, Pressure) for event in stand.events)
    finished = await stand.until_finished("a")
    assert finished.reason is FinishReason.LENGTH
    await stand.loop.stop()
    await stand.task
