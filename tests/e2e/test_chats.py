"""The whole way, from an OpenAI client to the ranks and back, on the default model over two ranks."""

import asyncio
from dataclasses import dataclass, field

import openai
import pytest

from tests.e2e.conftest import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.ray, pytest.mark.model, pytest.mark.slow]

STORIES = ("a lighthouse keeper", "two rival bakers", "a lost robot", "the first snow")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def client_of(server: ServerProcess) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300.0)


@dataclass(frozen=True, slots=True)
class Story:
    """`parks` says how often it was parked, and is no part of what must be equal."""

    text: str
    finish: str | None
    tokens: int
    parks: int = field(compare=False)


async def story(client: openai.AsyncOpenAI, subject: str) -> Story:
    """Always the same for the same subject: greedy, to a fixed length."""
    stream = await client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": f"Tell me a long story about {subject}."}],
        temperature=0,
        max_tokens=100,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    text, finish, usage = "", None, None
    async for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
        usage = chunk.usage or usage
    assert usage is not None
    assert usage.model_extra is not None
    return Story(text, finish, usage.completion_tokens, usage.model_extra["parks"])


async def test_a_chat_is_answered_whole_and_as_the_same_stream(server: ServerProcess) -> None:
    async with client_of(server) as client:
        whole = await client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0, max_tokens=32)
        stream = await client.chat.completions.create(
            model="smollm2", messages=QUESTION, temperature=0, max_tokens=32, stream=True
        )
        pieces = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
    answer = whole.choices[0].message.content
    assert answer is not None
    assert "Paris" in answer
    assert whole.choices[0].finish_reason == "stop"
    assert "".join(pieces) == answer
    assert len(pieces) > 3


async def test_a_completion_continues_its_prompt(server: ServerProcess) -> None:
    async with client_of(server) as client:
        done = await client.completions.create(
            model="smollm2", prompt="One, two, three, four,", temperature=0, max_tokens=4
        )
    assert done.choices[0].text.startswith(" five")
    assert done.usage is not None
    assert done.usage.completion_tokens == 4


async def test_the_model_is_listed_and_another_is_unknown(server: ServerProcess) -> None:
    async with client_of(server) as client:
        assert [model.id async for model in await client.models.list()] == ["smollm2"]
        with pytest.raises(openai.NotFoundError, match=r"this server serves .smollm2."):
            await client.chat.completions.create(model="gpt-9", messages=QUESTION)


async def test_a_prompt_larger_than_the_pool_is_refused_with_both_numbers(server: ServerProcess) -> None:
    async with client_of(server) as client:
        with pytest.raises(openai.BadRequestError, match="256"):
            await client.completions.create(model="smollm2", prompt="one two three four " * 100)


async def test_four_chats_park_in_a_small_pool_and_none_differs_from_its_solo_run(server: ServerProcess) -> None:
    async with client_of(server) as client:
        alone = [await story(client, subject) for subject in STORIES]
        together = await asyncio.gather(*(story(client, subject) for subject in STORIES))
    assert [(run.finish, run.tokens) for run in together] == [("length", 100)] * 4
    assert sum(run.parks for run in alone) == 0
    assert sum(run.parks for run in together) > 0
    assert together == alone
    await asyncio.to_thread(server.await_idle)


async def test_a_client_that_leaves_gives_everything_back(server: ServerProcess) -> None:
    await asyncio.to_thread(server.await_idle)
    async with client_of(server) as client:
        stream = await client.chat.completions.create(
            model="smollm2", messages=QUESTION, max_tokens=200, stream=True, extra_body={"ignore_eos": True}
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        status = await asyncio.to_thread(server.health)
        assert status["by_state"] == {"resident": 1}
        await stream.close()
    await asyncio.to_thread(server.await_idle)
