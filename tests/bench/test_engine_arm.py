"""The engine arm over fake ranks: what it submits, what it counts, and how a failure of the ranks reaches a stream."""

import asyncio
from pathlib import Path

import pytest

from bench.engine_arm import PAGE_SIZE, EngineShape, driven, engine_config, rank_specs
from bench.prompts import Prompt
from bench.streams import StreamError
from tests.fakes import FakeExecutor, FakeRanks

SHAPE = EngineShape(world_size=2, num_threads=1, pool_tokens=1000)
CONFIG = engine_config("arm", SHAPE, 512)


def executor(*, hold: bool = False) -> FakeExecutor:
    return FakeExecutor(FakeRanks(num_pages=SHAPE.num_pages, arena_pages=0, page_size=PAGE_SIZE), hold=hold)


def prompt(num_tokens: int) -> Prompt:
    return Prompt(text="", tokens=tuple(range(num_tokens)))


async def test_streams_run_together_and_every_token_is_counted() -> None:
    async with driven("arm", executor(), CONFIG) as arm:
        records = await asyncio.gather(arm.stream(prompt(40), 9), arm.stream(prompt(64), 5))
    assert [(record.prompt_tokens, record.completion_tokens) for record in records] == [(40, 9), (64, 5)]
    assert [sum(count for _, count in record.arrivals) for record in records] == [9, 5]


async def test_ranks_that_fail_end_the_stream_with_an_error() -> None:
    ranks = executor(hold=True)
    async with driven("arm", ranks, CONFIG) as arm:
        stream = asyncio.create_task(arm.stream(prompt(40), 9))
        for _ in range(10):  # turns of the event loop, until the first plan is out
            await asyncio.sleep(0)
        assert ranks.num_due
        ranks.fail("rank 1 is gone")
        with pytest.raises(StreamError, match=r"0 of 9 tokens came: .*rank 1 is gone"):
            await stream


def test_ranks_get_the_shape_asked_for_and_no_arena() -> None:
    specs = rank_specs(Path("/models/tiny"), SHAPE)
    assert [(spec.rank, spec.world_size, spec.num_threads, spec.arena_pages) for spec in specs] == [
        (0, 2, 1, 0),
        (1, 2, 1, 0),
    ]
    assert {spec.num_pages for spec in specs} == {63}  # 1,000 tokens need 62.5 pages
    assert specs[0].collective == specs[1].collective
    assert specs[0].collective.kind == "shm"
