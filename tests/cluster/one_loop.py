"""A whole cluster in one event loop: everything but Ray and the model, which a fake executor stands for."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cluster.admission_desk import AdmissionDesk
from cluster.cluster_spec import ClusterSpec, GroupSpec
from cluster.engine_host import EngineHost
from cluster.engine_port import EngineOrder, EnginePort
from cluster.token_link import TokenClient
from scheduler.admission import AdmissionPolicy
from scheduler.messages import Notice, Submission, TokenEvent
from scheduler.sampling import SamplingParams, StopRules
from tests.fakes import FakeExecutor, FakeRanks, solo_run
from workers.spec import CollectiveSpec, RankSpec

VOCAB = 1000
PAGE_BYTES = 1000


def group(num_pages: int = 12, arena_pages: int = 64) -> GroupSpec:
    rank = RankSpec(
        model_dir="/m",
        rank=0,
        world_size=1,
        collective=CollectiveSpec(kind="single"),
        num_pages=num_pages,
        arena_pages=arena_pages,
        max_model_len=160,
        max_step_tokens=64,
        max_running=8,
    )
    return ClusterSpec(cluster_id="t", rank=rank, page_bytes=PAGE_BYTES).groups()[0]


def request(number: int, num_tokens: int, priority: int = 0, n: int = 1) -> Submission:
    return Submission(
        request_id=f"r{number}",
        gateway_id="gateway",
        prompt_tokens=prompt(number),
        sampling=SamplingParams(seed=number),
        stop=StopRules(max_tokens=num_tokens, ignore_eos=True),
        priority=priority,
        n=n,
    )


@dataclass
class Cluster:
    desk: AdmissionDesk
    host: EngineHost
    executor: FakeExecutor
    client: TokenClient
    notices: list[tuple[str, Notice]] = field(default_factory=list)
    tokens: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    ends: dict[tuple[str, int], TokenEvent] = field(default_factory=dict)

    def submit(self, number: int, num_tokens: int, priority: int = 0, n: int = 1) -> None:
        self.desk.submit(request(number, num_tokens, priority, n))

    async def until_finished(self, *numbers: int, choices: int = 1) -> dict[str, tuple[list[int], TokenEvent]]:
        """Tokens and last event of choice 0 of each request; the others' are in `tokens` and `ends`."""
        wanted = {(f"r{number}", choice) for number in numbers for choice in range(choices)}
        await self._read(lambda: wanted <= self.ends.keys())
        return {f"r{number}": (self.tokens[f"r{number}", 0], self.ends[f"r{number}", 0]) for number in numbers}

    async def until_tokens(self, number: int, count: int) -> None:
        """Until its first choice has that many tokens."""
        await self._read(lambda: len(self.tokens.get((f"r{number}", 0), [])) >= count)

    async def _read(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            if enough():
                return
            async for batch in self.client:
                for event in batch:
                    key = (event.request_id, event.choice)
                    self.tokens.setdefault(key, []).extend(event.tokens)
                    if event.notice is not None:
                        self.notices.append((event.request_id, event.notice))
                    if event.finish is not None:
                        self.ends[key] = event
                if enough():
                    return


def prompt(number: int) -> tuple[int, ...]:
    return tuple(range(number, number + 20))


def alone(number: int, num_tokens: int, choice: int = 0) -> list[int]:
    return solo_run(prompt(number), number + choice, VOCAB, num_tokens)


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

    async def send(orders: Sequence[EngineOrder]) -> None:
        await asyncio.sleep(0)
        host.post(orders)

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
        while (await cluster.desk.status())["by_state"]:
            pass
    cluster.desk.check_integrity()
    cluster.host.check_integrity()
    (row,) = (await cluster.desk.status())["groups"]
    assert (row["pages_free"], row["arena_free"]) == (row["pages_total"], row["arena_total"])
    assert cluster.desk._host._readers == {}


def gained(cluster: Cluster) -> Counter[str]:
    """What the engine's figures have gained, by name; observations are counted."""
    gains: Counter[str] = Counter()
    for name, value, _ in cluster.host.figures.take():
        gains[name] += 1 if name == "parkade_step_seconds" else int(value)
    return gains
