"""What a client is told of parking while and after it happens: comments, usage, a header; and that a stream lives."""

import json
from collections.abc import AsyncGenerator, Sequence

import httpx
import pytest
from fastapi import FastAPI

from deploy.gateway import Fittings, GatewayLimits, ServedModel, create_app
from scheduler.messages import FinishReason, Notice, Submission, TokenEvent
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, OpenCall, says, served_model

CHAT = "/v1/chat/completions"


async def test_each_notice_is_a_comment(backend: HandPlayedBackend, app: FastAPI, chat_body: Body) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    await call.next_message()
    await call.next_piece()
    for notice in (Notice.PARKED, Notice.RESUMED, Notice.RECOMPUTED):
        backend.send(notice=notice)
        assert await call.next_piece() == f": {notice.value}\n\n".encode()
    backend.send(finish=FinishReason.STOP)
    assert (await call.next_piece()).endswith(b"data: [DONE]\n\n")
    await call.task


async def test_a_silent_stream_sends_comments_until_there_is_something_to_say(
    backend: HandPlayedBackend, app: FastAPI, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    await call.next_message()
    await call.next_piece()
    for _ in range(2):  # queued
        backend.fall_silent()
        assert await call.next_piece() == b": keep-alive\n\n"
    backend.send(notice=Notice.PARKED)
    assert await call.next_piece() == b": parked\n\n"
    backend.fall_silent()
    assert await call.next_piece() == b": keep-alive\n\n"
    backend.send(text="a", finish=FinishReason.STOP)
    assert b'"content":"a"' in await call.next_piece()
    await call.task


async def test_a_token_without_text_is_no_silence(backend: HandPlayedBackend, app: FastAPI, chat_body: Body) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    await call.next_message()
    await call.next_piece()
    backend.send(text="é".encode()[:1])
    backend.send(text="é".encode()[1:])
    assert b'"content":"\xc3\xa9"' in await call.next_piece()
    call.hang_up()
    await call.task


async def test_tokens_that_have_no_text_for_long_do_not_silence_a_stream(
    backend: HandPlayedBackend, model: ServedModel, chat_body: Body
) -> None:
    app = create_app(backend, model, GatewayLimits(keep_alive_s=0.0))
    call = OpenCall(app, CHAT, chat_body(stream=True))
    await call.next_message()
    await call.next_piece()
    backend.send(text="é".encode()[:1])
    assert await call.next_piece() == b": keep-alive\n\n"
    backend.send(text="é".encode()[1:])
    assert b'"content":"\xc3\xa9"' in await call.next_piece()
    call.hang_up()
    await call.task


@pytest.mark.parametrize("stream", [True, False])
async def test_only_streams_ask_to_be_woken(
    stream: bool, backend: HandPlayedBackend, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float | None] = []
    events = backend.events

    def asking(request_id: str, idle_s: float | None) -> AsyncGenerator[Sequence[TokenEvent], None]:
        asked.append(idle_s)
        return events(request_id, idle_s)

    monkeypatch.setattr(backend, "events", asking)
    backend.script = says("x")
    app = create_app(backend, served_model(), GatewayLimits(keep_alive_s=7.0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        await client.post(CHAT, json=chat_body(stream=stream))
    assert asked == ([7.0] if stream else [None])


async def test_a_stream_is_kept_alive_every_two_seconds() -> None:
    assert GatewayLimits().keep_alive_s == 2.0


async def test_usage_and_header_of_a_whole_answer_tell_of_its_parks(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x", parks=2, recomputes=1, parked_s=1.23456)
    response = await client.post(CHAT, json=chat_body())
    usage = response.json()["usage"]
    assert {name: usage[name] for name in ("parks", "recomputes", "parked_seconds")} == {
        "parks": 2,
        "recomputes": 1,
        "parked_seconds": 1.235,
    }
    assert response.headers["x-parkade-parks"] == "parks=2; recomputes=1; parked_seconds=1.235"


async def test_who_was_never_parked_is_told_so(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    response = await client.post(CHAT, json=chat_body())
    assert response.headers["x-parkade-parks"] == "parks=0; recomputes=0; parked_seconds=0.000"


async def test_the_usage_of_a_stream_tells_the_same(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x", parks=2, recomputes=1, parked_s=1.23456)
    body = chat_body(stream=True, stream_options={"include_usage": True})
    last = (await client.post(CHAT, json=body)).text.split("\n\n")[-3]
    usage = json.loads(last.removeprefix("data: "))["usage"]
    assert (usage["parks"], usage["recomputes"], usage["parked_seconds"]) == (2, 1, 1.235)


class Meter:
    def __init__(self) -> None:
        self.seen: list[tuple[int, bool]] = []

    def first_token(self, priority: int, seconds: float) -> None:
        self.seen.append((priority, seconds >= 0))


@pytest.mark.parametrize("stream", [True, False])
async def test_the_first_token_is_told_once_a_request_with_its_priority(
    stream: bool, backend: HandPlayedBackend, chat_body: Body
) -> None:
    meter = Meter()

    def script(submission: Submission) -> list[TokenEvent]:
        return [TokenEvent(request_id=submission.request_id, notice=Notice.PARKED), *says("a", "b")(submission)]

    backend.script = script
    app = create_app(backend, served_model(), None, Fittings(meter=meter))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        await client.post(CHAT, json=chat_body(priority=4, n=2, stream=stream))
    assert meter.seen == [(4, True)]


async def test_who_gets_no_token_has_no_first_one(backend: HandPlayedBackend, chat_body: Body) -> None:
    meter = Meter()
    backend.script = says(finish=FinishReason.ERROR, error="the group is lost")
    app = create_app(backend, served_model(), None, Fittings(meter=meter))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        assert (await client.post(CHAT, json=chat_body())).status_code == 503
    assert meter.seen == []
