"""What goes wrong behind the gateway, and what the client is told of it."""

import asyncio
import logging
from collections.abc import Callable

import httpx
import pytest
from fastapi import FastAPI

from deploy.errors import BackendLost
from deploy.gateway import GatewayLimits, create_app
from deploy.gateway.recent_refusal import MEMORY_S, RecentRefusal
from scheduler.admission.errors import DuplicateRequest, NeverFits, NoGroup, QueueFull
from scheduler.messages import FinishReason, Submission, TokenEvent
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, says, served_model

CHAT = "/v1/chat/completions"
SECRET = "a secret of the inside"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (QueueFull(9, 8, "requests", 7), (429, "rate_limit_error", "queue_full", "7")),
        (NoGroup(2), (503, "service_unavailable", "not_ready", "2")),
        (BackendLost("no engine is connected"), (503, "service_unavailable", "backend_lost", "1")),
        (NeverFits(101, 96, "the KV pool"), (400, "invalid_request_error", "context_length_exceeded", None)),
        (DuplicateRequest("x"), (500, "server_error", "internal", None)),
        (RuntimeError(SECRET), (500, "server_error", "internal", None)),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_refusals_have_their_status_before_anything_is_streamed(
    refusal: Exception, expected: tuple[object, ...], stream: bool, backend: HandPlayedBackend, app: FastAPI
) -> None:
    backend.refusal = refusal
    body = {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.post(CHAT, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"], response.headers.get("retry-after")) == expected
    assert SECRET not in response.text


async def test_a_request_that_never_fits_is_told_both_numbers(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.refusal = NeverFits(101, 96, "the KV pool")
    error = (await client.post(CHAT, json=chat_body())).json()["error"]
    assert error["param"] == "messages"
    assert "100 tokens" in error["message"]
    assert "96 tokens" in error["message"]


async def test_the_log_of_an_unexpected_error_holds_its_place_and_not_its_message(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body, caplog: pytest.LogCaptureFixture
) -> None:
    backend.refusal = RuntimeError(SECRET)
    with caplog.at_level(logging.ERROR):
        await client.post(CHAT, json=chat_body())
    assert "unexpected RuntimeError in /v1/chat/completions" in caplog.text
    assert "fakes.py" in caplog.text
    assert SECRET not in caplog.text


async def test_a_refused_request_is_not_cancelled_and_one_of_unknown_fate_is(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.refusal = NoGroup(1)
    await client.post(CHAT, json=chat_body())
    assert backend.cancelled == []
    backend.refusal = BackendLost("gone")
    await client.post(CHAT, json=chat_body())
    await backend.cancel_seen.wait()
    assert len(backend.cancelled) == 1


async def test_admission_that_does_not_answer_is_503_and_the_request_is_cancelled(
    backend: HandPlayedBackend, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(submission: Submission) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(backend, "submit", never)
    app = create_app(backend, served_model(), GatewayLimits(submit_s=0.01))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.post(CHAT, json=chat_body())
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    await backend.cancel_seen.wait()


async def test_a_full_queue_refuses_the_next_before_it_is_tokenized(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.refusal = QueueFull(8, 8, "requests", 3)
    await client.post(CHAT, json=chat_body())
    backend.refusal = None
    backend.script = says("x")
    too_long = chat_body(messages=[{"role": "user", "content": "x" * 500}])
    assert (await client.post(CHAT, json=too_long)).status_code == 429


def test_a_refusal_is_soon_forgotten() -> None:
    time = 5.0
    memory = RecentRefusal(now=lambda: time)
    memory.check()
    memory.note(QueueFull(8, 8, "requests", 3))
    with pytest.raises(QueueFull):
        memory.check()
    time += MEMORY_S
    memory.check()


def failing(
    error: str | None, *, finish: FinishReason = FinishReason.ERROR
) -> Callable[[Submission], list[TokenEvent]]:
    def play(submission: Submission) -> list[TokenEvent]:
        request_id = submission.request_id
        return [
            TokenEvent(request_id=request_id, tokens=tuple(b"half")),
            TokenEvent(request_id=request_id, finish=finish, error=error),
        ]

    return play


async def test_a_request_the_engine_gives_up_is_503_with_the_engines_words(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = failing("the KV pool is full and parking is off")
    response = await client.post(CHAT, json=chat_body())
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (503, "request_failed")
    assert error["message"] == "the KV pool is full and parking is off"
    assert backend.cancelled == []


async def test_in_a_stream_the_error_is_the_last_event(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = failing("the KV pool is full and parking is off")
    response = await client.post(CHAT, json=chat_body(stream=True))
    assert response.status_code == 200
    assert response.text.endswith(
        'data: {"error": {"message": "the KV pool is full and parking is off", "type": "service_unavailable", '
        '"param": null, "code": "request_failed"}}\n\n'
    )
    assert '"content":"half"' in response.text
    assert "[DONE]" not in response.text


async def test_a_cancel_from_elsewhere_is_an_error_too(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = failing(None, finish=FinishReason.CANCELLED)
    response = await client.post(CHAT, json=chat_body())
    assert response.status_code == 503
    assert response.json()["error"]["message"] == "the request was cancelled on the server"


async def test_a_stream_that_breaks_inside_tells_nothing_of_the_inside(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    backend.broken = RuntimeError(SECRET)
    response = await client.post(CHAT, json=chat_body(stream=True))
    assert response.text.split("\n\n")[-2].startswith('data: {"error": {"message": "The server failed on this request.')
    assert SECRET not in response.text
    await backend.cancel_seen.wait()
    assert len(backend.cancelled) == 1
