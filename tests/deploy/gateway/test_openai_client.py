"""The official Python client against the application: what it sends is accepted, what it gets back it understands."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
from fastapi import FastAPI

from deploy.api_keys import load_api_keys
from deploy.gateway import Fittings, create_app
from scheduler.admission.errors import QueueFull
from scheduler.messages import FinishReason, Notice, Submission, TokenEvent
from tests.deploy.gateway.fakes import HandPlayedBackend, says, served_model

HI: list[openai.types.chat.ChatCompletionUserMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def openai_client(app: FastAPI) -> AsyncIterator[openai.AsyncOpenAI]:
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade")
    async with openai.AsyncOpenAI(
        base_url="http://parkade/v1", api_key="any", http_client=http, max_retries=0
    ) as client:
        yield client


async def test_a_chat(backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI) -> None:
    backend.script = says("Hello", " you")
    answer = await openai_client.chat.completions.create(
        model="org/tiny", messages=HI, max_tokens=20, temperature=0, seed=1, stop=["zzz"], extra_body={"priority": 3}
    )
    assert answer.choices[0].message.content == "Hello you"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9
    assert answer.id == backend.submissions[0].request_id
    assert backend.submissions[0].priority == 3


async def test_a_streamed_chat_with_parks_in_it(backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI) -> None:
    def play(submission: Submission) -> list[TokenEvent]:
        request_id = submission.request_id
        return [
            TokenEvent(request_id=request_id, tokens=tuple(b"Hel")),
            TokenEvent(request_id=request_id, notice=Notice.PARKED),
            TokenEvent(request_id=request_id, notice=Notice.RESUMED),
            TokenEvent(request_id=request_id, tokens=tuple(b"lo")),
            TokenEvent(request_id=request_id, finish=FinishReason.LENGTH, parks=1, parked_s=0.25),
        ]

    backend.script = play
    stream = await openai_client.chat.completions.create(
        model="org/tiny", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].delta.content for c in chunks[1:-2]] == ["Hel", "lo"]
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * 4
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 5
    assert usage.model_extra == {"parks": 1, "recomputes": 0, "parked_seconds": 0.25}


async def test_the_clients_stream_helper(backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI) -> None:
    backend.script = says("a", "b")
    async with openai_client.chat.completions.stream(model="org/tiny", messages=HI) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "ab"


async def test_completions_both_ways(backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI) -> None:
    backend.script = says(" world")
    answer = await openai_client.completions.create(model="org/tiny", prompt="hello")
    assert answer.choices[0].text == " world"
    stream = await openai_client.completions.create(model="org/tiny", prompt=[104, 105], stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == " world"


async def test_models(openai_client: openai.AsyncOpenAI) -> None:
    models = await openai_client.models.list()
    assert [model.id for model in models.data] == ["org/tiny"]
    assert (await openai_client.models.retrieve("org/tiny")).owned_by == "parkade"
    with pytest.raises(openai.NotFoundError) as caught:
        await openai_client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


async def test_errors_become_the_clients_own(backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        await openai_client.chat.completions.create(model="org/tiny", messages=[])
    assert (bad.value.param, bad.value.code) == ("messages", "empty_array")
    with pytest.raises(openai.NotFoundError):
        await openai_client.chat.completions.create(model="other", messages=HI)
    backend.refusal = QueueFull(8, 8, "requests", 2)
    with pytest.raises(openai.RateLimitError) as full:
        await openai_client.chat.completions.create(model="org/tiny", messages=HI)
    assert full.value.response.headers["retry-after"] == "2"


async def test_an_error_in_the_stream_is_raised(backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI) -> None:
    backend.script = says("x", finish=FinishReason.ERROR, error="the group is lost")
    stream = await openai_client.chat.completions.create(model="org/tiny", messages=HI, stream=True)
    with pytest.raises(openai.APIError, match="the group is lost"):
        [chunk async for chunk in stream]


async def test_a_client_that_times_out_is_a_client_that_left(
    backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI
) -> None:
    call = asyncio.ensure_future(openai_client.chat.completions.create(model="org/tiny", messages=HI))
    await backend.submitted.wait()
    call.cancel()
    await backend.cancel_seen.wait()
    assert backend.cancelled == [backend.submissions[0].request_id]


async def test_several_choices_whole(backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI) -> None:
    backend.script = says("Hello", " you")
    answer = await openai_client.chat.completions.create(model="org/tiny", messages=HI, n=3, seed=1)
    assert [(choice.index, choice.message.content, choice.finish_reason) for choice in answer.choices] == [
        (index, "Hello you", "stop") for index in range(3)
    ]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 27
    text = await openai_client.completions.create(model="org/tiny", prompt="hello", n=2)
    assert [choice.text for choice in text.choices] == ["Hello you"] * 2


async def test_several_choices_streamed(backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI) -> None:
    backend.script = says("a", "b")
    async with openai_client.chat.completions.stream(
        model="org/tiny", messages=HI, n=2, stream_options={"include_usage": True}
    ) as stream:
        final = await stream.get_final_completion()
    assert [(choice.index, choice.message.content, choice.finish_reason) for choice in final.choices] == [
        (0, "ab", "stop"),
        (1, "ab", "stop"),
    ]
    assert final.usage is not None
    assert final.usage.completion_tokens == 4


async def test_the_client_can_choose_the_id_and_read_the_parks(
    backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI
) -> None:
    backend.script = says("x", parks=1, parked_s=0.5)
    raw = await openai_client.chat.completions.with_raw_response.create(
        model="org/tiny", messages=HI, extra_headers={"X-Request-Id": "approval-7"}
    )
    assert raw.parse().id == raw.headers["x-request-id"] == "approval-7"
    assert raw.headers["x-parkade-parks"] == "parks=1; recomputes=0; parked_seconds=0.500"


async def test_a_key_of_the_clients_is_taken(backend: HandPlayedBackend, tmp_path: Path) -> None:
    backend.script = says("x")
    (tmp_path / "keys").write_text("alice sk-alice-0123456789\n")
    app = create_app(backend, served_model(), None, Fittings(keys=load_api_keys(tmp_path / "keys")))
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade")
    async with openai.AsyncOpenAI(
        base_url="http://parkade/v1", api_key="sk-alice-0123456789", http_client=http, max_retries=0
    ) as client:
        await client.chat.completions.create(model="org/tiny", messages=HI)
        assert backend.submissions[0].owner == "alice"
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.with_options(api_key="sk-other-0123456789").models.list()
    assert caught.value.code == "invalid_api_key"


async def test_a_cancelled_request_is_not_sent_again(
    backend: HandPlayedBackend, openai_client: openai.AsyncOpenAI
) -> None:
    backend.script = says(finish=FinishReason.CANCELLED)
    with pytest.raises(openai.APIStatusError) as caught:
        await openai_client.with_options(max_retries=3).chat.completions.create(model="org/tiny", messages=HI)
    assert (caught.value.status_code, caught.value.code) == (499, "request_cancelled")
    assert len(backend.submissions) == 1
