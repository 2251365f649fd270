"""Gateway to admission to engine and back, all in one event loop: everything of a cluster but Ray and the model."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from cluster.admission_desk import AdmissionDesk, EnginePort
from cluster.cluster_spec import ClusterSpec, GroupSpec
from cluster.engine_host import EngineHost
from cluster.token_link import TokenClient
from scheduler.admission import AdmissionPolicy, DuplicateRequest, NeverFits, NoGroup
from scheduler.executor import ExecutorFailed
from scheduler.messages import Command, FinishReason, Notice, Submission, TokenEvent
from scheduler.sampling import SamplingParams, StopRules
from tests.fakes import FakeExecutor, FakeRanks, solo_run
from workers.spec import CollectiveSpec, RankSpec

VOCAB = 1000


def group(num_pages: int = 12) -> GroupSpec:
    rank = RankSpec(
        model_dir="/m",
        rank=0,
        world_size=1,
        collective=CollectiveSpec(kind="single"),
        num_pages=num_pages,
        arena_pages=64,
        max_model_len=160,
        max_step_tokens=64,
        max_running=8,
    )
    return ClusterSpec(cluster_id="t", rank=rank).groups()[0]


@dataclass
class Cluster:
    desk: AdmissionDesk
    host: EngineHost
    executor: FakeExecutor
    client: TokenClient
    notices: list[tuple[str, Notice]] = field(default_factory=list)

    def submit(self, number: int, num_tokens: int, priority: int = 0) -> None:
        refusal = self.desk.submit(
            Submission(
                request_id=f"r{number}",
                gateway_id="gateway",
                prompt_tokens=prompt(number),
                sampling=SamplingParams(seed=number),
                stop=StopRules(max_tokens=num_tokens, ignore_eos=True),
                priority=priority,
            )
        )
        assert refusal is None

    async def until_finished(self, *numbers: int) -> dict[str, tuple[list[int], TokenEvent]]:
        """Tokens and last event of each request."""
        wanted = {f"r{number}" for number in numbers}
        tokens: dict[str, list[int]] = {}
        ends: dict[str, TokenEvent] = {}
        async with asyncio.timeout(20):
            async for batch in self.client:
                for event in batch:
                    tokens.setdefault(event.request_id, []).extend(event.tokens)
                    if event.notice is not None:
                        self.notices.append((event.request_id, event.notice))
                    if event.finish is not None:
                        ends[event.request_id] = event
                if wanted <= ends.keys():
                    break
        return {request_id: (tokens[request_id], ends[request_id]) for request_id in wanted}


def prompt(number: int) -> tuple[int, ...]:
    return tuple(range(number, number + 20))


@asynccontextmanager
async def running(spec: GroupSpec) -> AsyncIterator[Cluster]:
    ranks = FakeRanks(
        num_pages=spec.engine.num_pages,
        arena_pages=spec.engine.arena_pages,
        page_size=spec.engine.page_size,
        vocab=VOCAB,
    )
    executor = FakeExecutor(ranks)
    desk = AdmissionDesk(AdmissionPolicy())

    async def tell(words: Sequence[object]) -> None:
        await asyncio.sleep(0)
        desk.take_words(spec.group_id, words)  # type: ignore[arg-type]

    host = EngineHost(spec, executor, tell)
    address = await host.start()

    async def send(commands: Sequence[Command]) -> None:
        await asyncio.sleep(0)
        host.post(commands)

    desk.register(spec.capacity, EnginePort(address, send, host.probe))
    client = await TokenClient.connect(address, "gateway")
    try:
        yield Cluster(desk, host, executor, client)
    finally:
        await host.stop()
        await client.close()


async def settle(cluster: Cluster) -> None:
    """Until admission has heard all: then nothing lives, and every page is free."""
    async with asyncio.timeout(10):
        while (await cluster.desk.status())["requests"]:
            pass
    cluster.desk.check_integrity()
    cluster.host.check_integrity()
    (row,) = (await cluster.desk.status())["groups"]
    assert (row["pages_free"], row["arena_free"]) == (row["pages_total"], row["arena_total"])
    assert cluster.desk._gateway_of == {}


async def test_three_times_the_pool_is_parked_and_restored_and_every_token_is_right() -> None:
    async with running(group()) as cluster:
        for number in range(5):
            cluster.submit(number, num_tokens=100, priority=10 if number == 3 else 0)
        done = await cluster.until_finished(*range(5))
        for number in range(5):
            tokens, end = done[f"r{number}"]
            assert tokens == solo_run(prompt(number), number, VOCAB, 100)
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


async def test_refusals_are_values() -> None:
    desk = AdmissionDesk(AdmissionPolicy())
    submission = Submission(
        request_id="a",
        gateway_id="gateway",
        prompt_tokens=tuple(range(500)),
        sampling=SamplingParams(),
        stop=StopRules(max_tokens=1),
    )
    assert isinstance(desk.submit(submission), NoGroup)
    async with running(group()) as cluster:
        assert isinstance(cluster.desk.submit(submission), NeverFits)
        cluster.submit(1, num_tokens=5)
        again = Submission(
            request_id="r1",
            gateway_id="gateway",
            prompt_tokens=(1,),
            sampling=SamplingParams(),
            stop=StopRules(max_tokens=1),
        )
        assert isinstance(cluster.desk.submit(again), DuplicateRequest)
        await cluster.until_finished(1)


async def test_an_engine_that_takes_no_commands_is_lost() -> None:
    desk = AdmissionDesk(AdmissionPolicy())
    spec = group()

    async def send(commands: Sequence[Command]) -> None:
        raise ConnectionError("the actor died")

    async def probe() -> None: ...

    async with running(spec) as cluster:
        desk.register(spec.capacity, EnginePort(cluster.desk.addresses[0], send, probe))
        first = Submission(
            request_id="a",
            gateway_id="gateway",
            prompt_tokens=(1, 2),
            sampling=SamplingParams(),
            stop=StopRules(max_tokens=1),
        )
        assert desk.submit(first) is None
        await desk.flush()
        assert desk.addresses == []
        assert isinstance(desk.submit(first), NoGroup)
        desk.check_integrity()
