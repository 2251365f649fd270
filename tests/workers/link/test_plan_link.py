"""Plans down, answers up: in order, merged, and loud about every way in which ranks can part."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from scheduler.executor import ExecutorFailed
from scheduler.plan import (
    Chunk,
    CopyIn,
    CopyOut,
    NewSequence,
    PageGrant,
    PageReset,
    StepPlan,
    StepResult,
)
from scheduler.sampling import SamplingParams
from tests.workers.link.fake_ranks import FakeAnswer, FakeRank, ServedRank, plan, served
from workers.link import LinkAddress, LinkRefused, OnCopy, PlanLink, serve_rank
from workers.link.endpoint import Endpoint
from workers.link.frames import MAX_HELLO_BYTES


@pytest.mark.parametrize("endpoint", [None, Endpoint(host="127.0.0.1", port=0)], ids=["unix", "tcp"])
async def test_every_rank_gets_every_plan_in_order_and_the_answers_are_merged(endpoint: Endpoint | None) -> None:
    async with served(FakeRank(0), FakeRank(1), FakeRank(2), endpoint=endpoint) as (link, ranks):
        plans = [plan(step, 7, 9) for step in range(20)]
        pending = [link.submit(one) for one in plans]
        results = [await result for result in pending]
        assert results == [StepResult(step=step, tokens=((7, step), (9, step)), step_s=0.003) for step in range(20)]
        assert [rank.fake.plans for rank in ranks] == [plans] * 3
    assert [rank.error for rank in ranks] == [None] * 3
    assert [rank.fake.closed for rank in ranks] == [1, 1, 1]


async def test_a_plan_arrives_as_it_was_sent_in_every_field() -> None:
    sampling = SamplingParams(temperature=0.5, top_k=3, logit_bias=((5, -1.5),), seed=2**63 + 1)
    full = StepPlan(
        step=0,
        finished=(1, 2),
        freed_arena_ids=(9, 11),
        copies_out=(CopyOut(copy_id=3, page_ids=(1, 2), arena_ids=(4, 5)),),
        copies_in=(CopyIn(copy_id=4, arena_ids=(6,), page_ids=(7,)),),
        new=(
            NewSequence(
                seq_id=5, tokens=(10, 11, 12), num_prompt_tokens=3, sampling=sampling, page_ids=(12,), num_computed=2
            ),
        ),
        resets=(PageReset(seq_id=6, page_ids=(13, 14), num_computed=20),),
        grants=(PageGrant(seq_id=5, page_ids=(8,)),),
        chunks=(Chunk(seq_id=5, start=0, num_tokens=3, sample=True),),
    )
    async with served(FakeRank(0)) as (link, ranks):
        link.listen(lambda result: None)
        await link.submit(full)
        assert ranks[0].fake.plans == [full]


async def test_ranks_that_drew_different_tokens_fail_the_group_and_both_are_hung_up_on() -> None:
    def stray(fake: FakeRank, step: StepPlan) -> FakeAnswer | None:
        return FakeAnswer(step.step, tokens=((1, 99),)) if step.step == 1 else None

    async with served(FakeRank(0), FakeRank(1, stray)) as (link, ranks):
        results = [link.submit(plan(step, 1)) for step in range(3)]
        assert (await results[0]).step == 0
        with pytest.raises(ExecutorFailed, match="step 1: rank 1 has digest"):
            await results[1]
        with pytest.raises(ExecutorFailed, match="step 1"):
            await results[2]
        with pytest.raises(ExecutorFailed, match="step 1"):
            await link.submit(plan(3))
        await asyncio.to_thread(lambda: [rank.join() for rank in ranks])
        assert [rank.fake.closed for rank in ranks] == [1, 1]


async def test_a_rank_that_waits_for_a_failed_peer_hears_that_the_engine_hung_up() -> None:
    def act(fake: FakeRank, step: StepPlan) -> None:
        if fake.rank == 1:
            raise ValueError("boom")
        assert ranks[0].hung_up.wait(10)  # as an all-reduce would wait for rank 1
        raise RuntimeError("the collective was aborted")

    async with served(FakeRank(0, act), FakeRank(1, act)) as (link, ranks):
        with pytest.raises(ExecutorFailed, match="rank 1 failed in step 0: ValueError: boom"):
            await link.submit(plan(0))
        await asyncio.to_thread(ranks[0].join)
        assert ranks[0].error is None


async def test_an_answer_to_another_step_fails_the_group() -> None:
    def late(fake: FakeRank, step: StepPlan) -> FakeAnswer:
        return FakeAnswer(step.step + 1)

    async with served(FakeRank(0), FakeRank(1, late)) as (link, _):
        with pytest.raises(ExecutorFailed, match="rank 1 answered step 1, expected step 0"):
            await link.submit(plan(0))


async def test_a_ranks_exception_reaches_the_engine_with_its_text() -> None:
    def broken(fake: FakeRank, step: StepPlan) -> FakeAnswer:
        raise ValueError("page 12 is beyond the pool of 8")

    async with served(FakeRank(0), FakeRank(1, broken)) as (link, ranks):
        with pytest.raises(
            ExecutorFailed, match="rank 1 failed in step 0: ValueError: page 12 is beyond the pool of 8"
        ):
            await link.submit(plan(0))
        await asyncio.to_thread(ranks[1].join)
        assert isinstance(ranks[1].error, ValueError)
        assert ranks[1].fake.closed == 1


async def test_a_rank_that_fails_to_load_fails_the_start() -> None:
    link = PlanLink(1)
    address = LinkAddress(endpoint=await link.open(), token=link.token, rank=0)

    def build(on_copy: OnCopy) -> FakeRank:
        raise FileNotFoundError("model.safetensors is missing")

    serving = asyncio.ensure_future(asyncio.to_thread(serve_rank, address, build, lambda: None))
    with pytest.raises(ExecutorFailed, match=r"rank 0 failed while it loaded: FileNotFoundError: model.safetensors"):
        await link.ready(10)
    with pytest.raises(FileNotFoundError):
        await serving


async def test_a_rank_that_closes_its_link_fails_what_is_in_flight() -> None:
    def leave(fake: FakeRank, step: StepPlan) -> FakeAnswer:
        raise SystemExit(1)

    async with served(FakeRank(0, lambda fake, step: None), FakeRank(1, leave)) as (link, _):
        with pytest.raises(ExecutorFailed, match="rank 1"):
            await link.submit(plan(0))


async def test_a_rank_that_does_not_answer_in_time_fails_the_group() -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(fake: FakeRank, step: StepPlan) -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()

    async with served(FakeRank(0), FakeRank(1, hang), step_timeout_s=0.1) as (link, _):
        with pytest.raises(ExecutorFailed, match=r"step 0: no answer from ranks \[1\] within 0\.1 s"):
            await link.submit(plan(0))
        release.set()


async def test_ranks_that_never_come_fail_the_start_by_name() -> None:
    link = PlanLink(2)
    endpoint = await link.open()
    rank = ServedRank(link, endpoint, FakeRank(1))
    with pytest.raises(ExecutorFailed, match=r"ranks \[0\] were not ready within 0\.3 s"):
        await link.ready(0.3)
    await asyncio.to_thread(rank.join)
    assert rank.error is None


async def test_progress_is_told() -> None:
    told: list[str] = []
    link = PlanLink(1)
    endpoint = await link.open()
    rank = ServedRank(link, endpoint, FakeRank(0))
    await link.ready(10, told.append)
    assert (told[0], told[-1]) == ("0 of 1 ranks ready", "1 of 1 ranks ready")
    link.close()
    await asyncio.to_thread(rank.join)


async def test_a_peer_without_the_token_is_turned_away_without_a_word_and_others_go_on() -> None:
    link = PlanLink(1)
    endpoint = await link.open()
    stranger = ServedRank(link, endpoint, FakeRank(0), token="guess")
    await asyncio.to_thread(stranger.join)
    assert isinstance(stranger.error, LinkRefused)
    assert "is the token right" in str(stranger.error)
    rank = ServedRank(link, endpoint, FakeRank(0))
    await link.ready(10)
    assert (await link.submit(plan(0, 3))).tokens == ((3, 0),)
    link.close()
    await asyncio.to_thread(rank.join)


async def test_a_second_rank_of_one_number_and_a_rank_beyond_the_world_are_refused() -> None:
    link = PlanLink(2)
    endpoint = await link.open()
    first = ServedRank(link, endpoint, FakeRank(0))
    while not link._ready:
        await asyncio.wait_for(link._changed.wait(), 5)
        link._changed.clear()
    for number in (0, 2, -1):
        other = ServedRank(link, endpoint, FakeRank(number))
        await asyncio.to_thread(other.join)
        assert isinstance(other.error, LinkRefused)
        assert f"rank {number} of 2 is unknown or already connected" in str(other.error)
    link.close()
    await asyncio.to_thread(first.join)


async def test_a_stranger_may_not_send_more_than_a_hello() -> None:
    link = PlanLink(1)
    endpoint = await link.open()
    reader, writer = await asyncio.open_unix_connection(endpoint.removeprefix("unix:"))
    writer.write((MAX_HELLO_BYTES + 1).to_bytes(4, "little"))
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    await writer.wait_closed()
    link.close()


async def test_an_oversized_answer_fails_the_group() -> None:
    link = PlanLink(1)
    endpoint = await link.open()
    from workers.link.frames import frame
    from workers.link.wire import READY, VERSION, Answer, Hello, encode

    _, writer = await asyncio.open_unix_connection(endpoint.removeprefix("unix:"))
    writer.write(frame(encode(Hello(version=VERSION, token=link.token, rank=0))) + frame(encode(Answer(step=READY))))
    await link.ready(5)
    result = link.submit(plan(0))
    writer.write(b"\xff\xff\xff\xff")
    with pytest.raises(ExecutorFailed, match=r"rank 0 sent what is no answer .*4294967295 bytes is above the bound"):
        await result
    writer.close()
    await writer.wait_closed()


async def test_the_socket_lies_in_a_private_folder_that_is_gone_once_all_ranks_are_there() -> None:
    link = PlanLink(1)
    endpoint = await link.open()
    folder = Path(endpoint.removeprefix("unix:")).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.stat().st_uid == os.getuid()
    rank = ServedRank(link, endpoint, FakeRank(0))
    await link.ready(10)
    assert not folder.exists()
    link.close()
    await asyncio.to_thread(rank.join)


async def test_stopping_ends_ranks_and_fails_what_was_pending() -> None:
    async with served(FakeRank(0)) as (link, ranks):
        link.close()
        link.close()
        with pytest.raises(ExecutorFailed, match="stopped"):
            await link.submit(plan(0))
        await asyncio.to_thread(ranks[0].join)
        assert ranks[0].error is None


async def test_tcp_frames_leave_at_once() -> None:
    async with served(FakeRank(0), endpoint=Endpoint(host="127.0.0.1", port=0)) as (link, _):
        transport = link._ranks[0]._transport
        assert transport is not None
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
