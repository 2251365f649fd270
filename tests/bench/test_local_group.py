"""A group in one process: what a stream is told, who ends it when no engine does, and what is noticed of a failure."""

import pytest

from bench.local_group import GATEWAY_ID, LocalGroup
from bench.streams import StreamError
from scheduler.engine.config import EngineConfig
from scheduler.messages import FinishReason, Notice, Submission
from scheduler.sampling import SamplingParams, StopRules
from tests.fakes import FakeExecutor, FakeRanks, solo_run

CONFIG = EngineConfig(
    group_id="g", num_pages=40, arena_pages=99, page_size=4, max_running=4, max_step_tokens=32, max_model_len=100
)


def executor(*, hold: bool = False) -> FakeExecutor:
    return FakeExecutor(FakeRanks(num_pages=40, arena_pages=99, page_size=4), hold=hold)


def let_go(ranks: FakeExecutor) -> None:
    """Answer what is due, and from now on at once."""
    ranks.hold = False
    while ranks.num_due:
        ranks.answer()


def asked(request_id: str, prompt: int = 6, max_tokens: int = 12, n: int = 1) -> Submission:
    return Submission(
        request_id=request_id,
        gateway_id=GATEWAY_ID,
        prompt_tokens=tuple(range(prompt)),
        sampling=SamplingParams(seed=3),
        stop=StopRules(max_tokens=max_tokens, ignore_eos=True),
        n=n,
    )


def solo(submission: Submission, choice: int = 0) -> list[int]:
    seed = submission.sampling.seed + choice
    return solo_run(submission.prompt_tokens, seed, 1000, submission.stop.max_tokens)


async def test_streams_that_do_not_fit_together_park_and_end_whole() -> None:
    submissions = [asked(f"r{number}", max_tokens=60) for number in range(3)]
    async with LocalGroup.running(CONFIG, executor()) as group:
        streams = [group.submit(submission) for submission in submissions]
        await group.ended(streams, 30.0)
        await group.until(group.is_idle, 5.0)
        group.check()
    assert [stream.choices[0].tokens for stream in streams] == [solo(submission) for submission in submissions]
    assert all(stream.is_whole for stream in streams)
    parked = max(streams, key=lambda stream: stream.parks)
    assert parked.parks >= 1
    assert [notice for _, notice in parked.notices][:2] == [Notice.PARKED, Notice.RESUMED]


async def test_a_family_has_a_stream_of_its_own_for_each_choice() -> None:
    submission = asked("r", n=3)
    async with LocalGroup.running(CONFIG, executor()) as group:
        stream = group.submit(submission)
        await group.ended([stream], 30.0)
    assert [choice.tokens for choice in stream.choices] == [solo(submission, choice) for choice in range(3)]
    assert stream.num_tokens == 36


async def test_a_request_cancelled_in_the_queue_ends_though_no_engine_says_so() -> None:
    ranks = executor(hold=True)
    async with LocalGroup.running(CONFIG, ranks) as group:
        for number in range(4):
            group.submit(asked(f"r{number}"))
        queued = group.submit(asked("queued"))
        row = group.row("queued")
        assert row is not None and row.state == "queued"
        group.cancel("queued")
        await group.ended([queued], 5.0)
        assert queued.choices[0].finish is FinishReason.CANCELLED
        let_go(ranks)


async def test_parked_by_order_it_stays_so_until_it_is_unparked() -> None:
    heard: list[str] = []
    group_of = LocalGroup.running(CONFIG, executor(), on_event=lambda event, _: heard.append(type(event).__name__))
    async with group_of as group:
        stream = group.submit(asked("r", max_tokens=40))
        await group.until(lambda: stream.num_tokens >= 3, 5.0)
        group.park("r")
        await group.until(lambda: "Parked" in heard, 5.0)
        said = stream.num_tokens
        assert not await group.news(0.2) or stream.num_tokens == said
        group.unpark("r")
        await group.ended([stream], 5.0)
    assert stream.choices[0].tokens == solo(stream.submission)


async def test_lost_ranks_are_told_to_whoever_waits() -> None:
    ranks = executor(hold=True)
    with pytest.raises(StreamError, match="rank 1 is gone"):
        async with LocalGroup.running(CONFIG, ranks) as group:
            group.submit(asked("r"))
            await group.until(lambda: ranks.num_due > 0, 5.0)
            ranks.fail("rank 1 is gone")
            await group.until(lambda: False, 5.0)


async def test_what_does_not_come_in_time_is_an_error_that_says_what_lives() -> None:
    ranks = executor(hold=True)
    async with LocalGroup.running(CONFIG, ranks) as group:
        stream = group.submit(asked("r"))
        with pytest.raises(StreamError, match=r"did not come within 0 s: r resident, 6 tokens"):
            await group.until(lambda: False, 0.0)
        with pytest.raises(StreamError, match=r"not every stream ended within 0 s: r resident"):
            await group.ended([stream], 0.0)
        let_go(ranks)
