"""Gateway to admission to engine and back, token for token, in one event loop."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cluster.admission_desk import AdmissionDesk
from cluster.engine_host import EngineHost
from scheduler.admission import AdmissionPolicy, DuplicateRequest, HoldTerms, NeverFits, NoGroup
from scheduler.executor import ExecutorFailed
from scheduler.messages import Admit, FinishReason, Notice
from tests.cluster.one_loop import VOCAB, alone, gained, group, request, running, settle
from tests.fakes import FakeExecutor, FakeRanks


async def test_three_times_the_pool_is_parked_and_restored_and_every_token_is_right() -> None:
    async with running(group()) as cluster:
        for number in range(5):
            cluster.submit(number, num_tokens=100, priority=10 if number == 3 else 0)
        done = await cluster.until_finished(*range(5))
        for number in range(5):
            tokens, end = done[f"r{number}"]
            assert tokens == alone(number, 100)
            assert (end.finish, end.error) == (FinishReason.LENGTH, None)
        parked = {request_id for request_id, notice in cluster.notices if notice is Notice.PARKED}
        assert parked
        assert "r3" not in parked
        await settle(cluster)


async def test_a_cancelled_request_ends_and_gives_everything_back() -> None:
    async with running(group()) as cluster:
        cluster.submit(0, num_tokens=120)
        cluster.submit(1, num_tokens=30)
        cluster.desk.cancel("r0")
        cluster.desk.cancel("unknown")
        done = await cluster.until_finished(1)
        assert done["r1"][1].finish is FinishReason.LENGTH
        await settle(cluster)


async def test_a_gateway_that_goes_away_has_all_its_requests_cancelled() -> None:
    async with running(group()) as cluster:
        cluster.executor.hold = True
        for number in range(6):
            cluster.submit(number, num_tokens=120)
        await cluster.client.close()
        cluster.executor.hold = False
        cluster.executor.answer()
        cluster.executor.answer()
        await settle(cluster)


async def test_lost_ranks_end_every_stream_with_an_error_and_later_requests_too() -> None:
    async with running(group()) as cluster:
        cluster.executor.hold = True
        cluster.submit(0, num_tokens=50)
        cluster.submit(1, num_tokens=50)
        await cluster.desk.flush()
        cluster.executor.fail("rank 1 closed its link")
        assert "rank 1 closed its link" in await asyncio.wait_for(cluster.host.ended(), 5)
        done = await cluster.until_finished(0, 1)
        assert {end.finish for _, end in done.values()} == {FinishReason.ERROR}
        cluster.submit(2, num_tokens=5)
        done = await cluster.until_finished(2)
        assert "rank 1 closed its link" in (done["r2"][1].error or "")
        with pytest.raises(ExecutorFailed, match="rank 1 closed its link"):
            await cluster.desk.status()


async def test_status_has_been_through_the_step_loop() -> None:
    async with running(group()) as cluster:
        before = cluster.executor.ranks.next_step
        status = await cluster.desk.status()
        assert cluster.executor.ranks.next_step == before + 1
        assert [row["group_id"] for row in status["groups"]] == ["group-0"]


async def test_refusals_are_raised() -> None:
    too_long = replace(request(0, 1), prompt_tokens=tuple(range(500)))
    with pytest.raises(NoGroup):
        AdmissionDesk(AdmissionPolicy()).submit(too_long)
    async with running(group()) as cluster:
        with pytest.raises(NeverFits):
            cluster.desk.submit(too_long)
        cluster.submit(1, num_tokens=5)
        with pytest.raises(DuplicateRequest):
            cluster.submit(1, num_tokens=5)
        await cluster.until_finished(1)


async def test_a_request_parked_by_an_order_lets_others_run_and_goes_on_token_for_token() -> None:
    async with running(group()) as cluster:
        cluster.submit(0, num_tokens=100)
        await cluster.until_tokens(0, 10)
        row = await cluster.desk.orders.park("r0", None, HoldTerms(), 20.0)
        assert (row.state, row.held, row.pages) == ("parked", True, 0)
        cluster.submit(1, num_tokens=100)
        await cluster.until_finished(1)
        assert ("r0", 0) not in cluster.ends
        row = await cluster.desk.orders.unpark("r0", None, 20.0)
        assert (row.state, row.parks, row.recomputes) == ("resident", 1, 0)
        done = await cluster.until_finished(0)
        assert done["r0"][0] == alone(0, 100)
        assert cluster.notices == [("r0", Notice.PARKED), ("r0", Notice.RESUMED)]
        await settle(cluster)
        kinds = [event.kind for event in cluster.desk.watch.read(0).events if event.request_id == "r0"]
        assert kinds == ["submitted", "admitted", "held", "parked", "unheld", "restored", "finished"]


async def test_a_family_is_parked_by_an_order_as_one_and_each_choice_is_as_its_seed_alone() -> None:
    async with running(group()) as cluster:
        cluster.submit(0, num_tokens=40, n=3)
        await cluster.until_tokens(0, 5)
        assert (await cluster.desk.orders.park("r0", None, HoldTerms(), 20.0)).seats == 3
        await cluster.desk.orders.unpark("r0", None, 20.0)
        await cluster.until_finished(0, choices=3)
        assert [cluster.tokens["r0", choice] for choice in range(3)] == [alone(0, 40, choice) for choice in range(3)]
        assert cluster.notices == [("r0", Notice.PARKED), ("r0", Notice.RESUMED)]
        await settle(cluster)


async def test_without_host_ram_the_parked_are_computed_again_and_every_token_is_right() -> None:
    async with running(group(arena_pages=0)) as cluster:
        for number in range(4):
            cluster.submit(number, num_tokens=100)
        done = await cluster.until_finished(*range(4))
        assert {request_id: tokens for request_id, (tokens, _) in done.items()} == {
            f"r{number}": alone(number, 100) for number in range(4)
        }
        assert sum(end.recomputes for _, end in done.values()) == sum(end.parks for _, end in done.values()) > 0
        await settle(cluster)
        gains = gained(cluster)
        assert (gains["parkade_prompt_tokens"], gains["parkade_generated_tokens"]) == (4 * 20, 4 * 100)
        assert gains["parkade_recomputed_tokens"] > 0
        assert gains["parkade_copies"] == 0


async def test_the_engines_figures_are_its_steps_tokens_and_copies() -> None:
    async with running(group()) as cluster:
        cluster.submit(0, num_tokens=30)
        await cluster.until_tokens(0, 10)
        await cluster.desk.orders.park("r0", None, HoldTerms(), 20.0)
        await cluster.desk.orders.unpark("r0", None, 0.0)
        await cluster.until_finished(0)
        await settle(cluster)
        gains = gained(cluster)
        assert gains.pop("parkade_step_seconds") >= 30
        assert gains == {"parkade_prompt_tokens": 20, "parkade_generated_tokens": 30, "parkade_copies": 2}


async def test_a_queued_request_ended_by_an_order_ends_its_stream_choice_by_choice() -> None:
    async with running(group(num_pages=10)) as cluster:
        cluster.submit(0, num_tokens=100)
        await cluster.until_tokens(0, 1)
        cluster.submit(1, num_tokens=100, n=8)
        assert cluster.desk.orders.request("r1", None).state == "queued"
        cluster.desk.orders.end("r1", None)
        await cluster.until_finished(1, choices=8)
        assert {end.finish for (name, _), end in cluster.ends.items() if name == "r1"} == {FinishReason.CANCELLED}
        await cluster.until_finished(0)
        await settle(cluster)


async def test_an_engine_that_admission_hears_no_more_says_that_it_has_ended() -> None:
    spec = group()
    ranks = FakeRanks(
        num_pages=spec.engine.num_pages,
        arena_pages=spec.engine.arena_pages,
        page_size=spec.engine.page_size,
        vocab=VOCAB,
    )

    async def tell(_: Sequence[object]) -> None:
        raise ConnectionError("its process died")

    host = EngineHost(spec, FakeExecutor(ranks), tell)
    await host.start()
    try:
        host.post([Admit(number=1, submission=request(0, num_tokens=3))])
        async with asyncio.timeout(5):
            assert await host.ended() == "group-0 cannot reach admission: its process died"
    finally:
        await host.stop()
