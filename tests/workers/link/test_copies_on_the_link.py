"""Ends of copies come by themselves, between the answers to steps, and are merged over all ranks."""

import asyncio
import threading

import pytest

from scheduler.executor import ExecutorFailed
from scheduler.plan import CopyOutcome, CopyResult, StepPlan
from tests.workers.link.fake_ranks import FakeCopyEnd, FakeRank, copying, plan, served
from workers.link import PlanLink


class Heard(asyncio.Queue[CopyResult]):
    """What a listener was told, in order."""

    async def next(self) -> CopyResult:
        return await asyncio.wait_for(self.get(), 10)


async def test_a_copy_is_told_once_when_the_last_rank_has_ended_it_while_steps_go_on() -> None:
    heard = Heard()
    async with served(FakeRank(0), FakeRank(1)) as (link, ranks):
        link.listen(heard.put_nowait)
        await link.submit(copying(0, 4, 5))
        ranks[1].fake.end_copy(FakeCopyEnd(5))
        ranks[1].fake.end_copy(FakeCopyEnd(4, CopyOutcome.FAILED, "no host memory", seconds=0.75))
        ranks[0].fake.end_copy(FakeCopyEnd(4))
        assert [(await link.submit(plan(step, 3))).tokens for step in (1, 2)] == [((3, 1),), ((3, 2),)]
        assert await heard.next() == CopyResult(
            copy_id=4, outcome=CopyOutcome.FAILED, reason="rank 1: no host memory", seconds=0.75, num_bytes=200
        )
        assert heard.empty()
        ranks[0].fake.end_copy(FakeCopyEnd(5))
        assert await heard.next() == CopyResult(copy_id=5, outcome=CopyOutcome.DONE, seconds=0.5, num_bytes=200)


async def test_results_of_earlier_plans_have_reached_who_awaits_them_when_a_copy_is_told() -> None:
    """The ranks end copy n at its very start, so that its end and the answer before it come in one read."""
    seen: list[str] = []

    def act(fake: FakeRank, step: StepPlan) -> None:
        if step.copies_out:
            fake.end_copy(FakeCopyEnd(step.copies_out[0].copy_id))

    async def step(link: PlanLink, one: StepPlan) -> None:
        await link.submit(one)
        seen.append(f"step {one.step}")

    async with served(FakeRank(0, act), FakeRank(1, act)) as (link, _):
        link.listen(lambda result: seen.append(f"copy {result.copy_id}"))
        for first in range(0, 40, 2):
            plans = [plan(first, 1), copying(first + 1, first)]
            await asyncio.gather(*(step(link, one) for one in plans))
            assert seen.index(f"step {first}") < seen.index(f"copy {first}")


async def test_an_end_that_nobody_asked_for_fails_the_group() -> None:
    async with served(FakeRank(0), FakeRank(1)) as (link, ranks):
        ranks[1].fake.end_copy(FakeCopyEnd(9))
        with pytest.raises(ExecutorFailed, match="rank 1 answered copy 9, which was not asked for"):
            await link.submit(plan(0))


async def test_a_copy_that_one_rank_never_ends_fails_the_group_by_the_ranks_name() -> None:
    async with served(FakeRank(0), FakeRank(1), step_timeout_s=0.2) as (link, ranks):
        told: list[CopyResult] = []
        link.listen(told.append)
        await link.submit(copying(0, 6))
        ranks[0].fake.end_copy(FakeCopyEnd(6))
        await asyncio.to_thread(ranks[1].join)
        with pytest.raises(ExecutorFailed, match=r"copy 6: no answer from ranks \[1\] within 0\.2 s"):
            await link.submit(plan(1))
        assert told == []


async def test_a_copy_that_landed_in_time_leaves_no_deadline_behind() -> None:
    heard = Heard()
    async with served(FakeRank(0)) as (link, ranks):
        link.listen(heard.put_nowait)
        await link.submit(copying(0, 2))
        deadline = link._copy_deadline
        ranks[0].fake.end_copy(FakeCopyEnd(2))
        await heard.next()
        assert deadline is not None and deadline.cancelled()
        assert link._copy_deadline is None


async def test_a_copy_may_wait_for_its_turn_as_long_as_others_end() -> None:
    """Ranks copy one after the other: the last of many may take longer, from its order on, than any copy may."""
    heard = Heard()
    async with served(FakeRank(0), FakeRank(1)) as (link, ranks):
        link.listen(heard.put_nowait)
        await link.submit(copying(0, 2, 3))
        deadline = link._copy_deadline
        ranks[0].fake.end_copy(FakeCopyEnd(2))
        ranks[1].fake.end_copy(FakeCopyEnd(2))
        assert (await heard.next()).copy_id == 2
        assert deadline is not None and deadline.cancelled()
        later = link._copy_deadline
        assert later is not None and later.when() > deadline.when() and not later.cancelled()
        ranks[0].fake.end_copy(FakeCopyEnd(3))
        ranks[1].fake.end_copy(FakeCopyEnd(3))
        assert (await heard.next()).copy_id == 3
        assert link._copy_deadline is None


async def test_a_copy_that_nobody_listens_for_is_refused() -> None:
    async with served(FakeRank(0)) as (link, _):
        with pytest.raises(ExecutorFailed, match="copy 2 was ordered before anybody listened for its end"):
            await link.submit(copying(0, 2))


async def test_a_copy_ordered_twice_fails_the_group() -> None:
    async with served(FakeRank(0)) as (link, _):
        link.listen(lambda result: None)
        first = link.submit(copying(0, 2))
        with pytest.raises(ExecutorFailed, match="copy 2 was ordered again before it had ended"):
            await link.submit(copying(1, 2))
        with pytest.raises(ExecutorFailed, match="copy 2 was ordered again"):
            await first


async def test_nobody_is_told_of_copies_after_the_link_was_closed() -> None:
    told: list[CopyResult] = []
    async with served(FakeRank(0)) as (link, ranks):
        link.listen(told.append)
        await link.submit(copying(0, 2))
        link.close()
        await asyncio.to_thread(ranks[0].join)
        ranks[0].fake.end_copy(FakeCopyEnd(2))  # the copy thread is told nothing of it
        assert ranks[0].error is None
    assert told == []


async def test_frames_of_both_threads_of_a_rank_never_mix() -> None:
    """The copy thread tells of 300 copies with long reasons while the rank answers 300 steps."""
    count, reason = 300, "x" * 3000
    told: dict[int, CopyResult] = {}

    async with served(FakeRank(0), FakeRank(1)) as (link, ranks):
        link.listen(lambda result: told.update({result.copy_id: result}))
        await link.submit(copying(0, *range(count)))

        def end_all(fake: FakeRank) -> None:
            for copy_id in range(count):
                fake.end_copy(FakeCopyEnd(copy_id, CopyOutcome.FAILED, reason))

        threads = [threading.Thread(target=end_all, args=(rank.fake,)) for rank in ranks]
        for thread in threads:
            thread.start()
        pending = [link.submit(plan(step, *range(64))) for step in range(1, count)]
        results = [await result for result in pending]
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])
        await link.submit(plan(count))  # its answer comes after all that was sent before it
        await asyncio.sleep(0)
    assert [result.step for result in results] == list(range(1, count))
    assert {result.reason for result in told.values()} == {f"rank 0: {reason}"}
    assert sorted(told) == list(range(count))


async def test_a_rank_blocked_on_an_engine_that_does_not_read_ends_when_the_engine_hangs_up() -> None:
    """Both of its threads stand in a send then; neither may keep the other from ending."""
    told, computed, ended = threading.Event(), threading.Event(), threading.Event()
    fake = FakeRank(0, lambda fake, step: computed.set() if step.step else None)

    def tell_much() -> None:
        for copy_id in range(5_000):
            fake.end_copy(FakeCopyEnd(copy_id, CopyOutcome.FAILED, "x" * 4000))
            told.set()
        ended.set()

    async with served(fake, step_timeout_s=30) as (link, ranks):
        link.listen(lambda result: None)
        await link.submit(copying(0, 0))
        transport = link._ranks[0]._transport
        assert transport is not None
        transport.pause_reading()
        copier = threading.Thread(target=tell_much)
        copier.start()
        await asyncio.to_thread(told.wait, 10)
        pending = link.submit(plan(1, 3))
        await asyncio.to_thread(computed.wait, 10)
        assert not ended.is_set()
        link.close()
        await asyncio.to_thread(copier.join, 10)
        assert ended.is_set()
        await asyncio.to_thread(ranks[0].join)
        assert ranks[0].error is None
        with pytest.raises(ExecutorFailed, match="stopped"):
            await pending
