"""What goes wrong behind the gateway, and what the client is told of it."""

import asyncio
import logging
from collections.abc import Callable

import httpx
import pytest
from fastapi import FastAPI

from deploy.errors import BackendLost
from deploy.gateway import GatewayLimits, create_app
from scheduler.admission.errors import (
    CapacityExhausted,
    Draining,
    DuplicateRequest,
    NeverFits,
    NoGroup,
    QueueFull,
    TooManyChoices,
)
from scheduler.messages import FinishReason, Submission, TokenEvent
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, says, served_model

CHAT = "/v1/chat/completions"
SECRET = "a secret of the inside"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (QueueFull(9, 8, "requests", 7), (429, "rate_limit_error", "queue_full", "7")),
        (CapacityExhausted(4), (429, "rate_limit_error", "capacity_exhausted", "4")),
        (Draining(30), (503, "service_unavailable", "draining", "30")),
        (NoGroup(2), (503, "service_unavailable", "not_ready", "2")),
        (BackendLost("no engine is connected"), (503, "service_unavailable", "backend_lost", "1")),
        (NeverFits(101, 96, "the KV pool"), (400, "invalid_request_error", "context_length_exceeded", None)),
        (TooManyChoices(9, 8), (400, "invalid_request_error", "too_many_choices", None)),
        (DuplicateRequest("x"), (409, "invalid_request_error", "request_id_in_use", None)),
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


async def test_admission_that_does_not_answer_is_503_and_what_it_accepts_later_is_cancelled(
    backend: HandPlayedBackend, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, taken = asyncio.Event(), []

    async def late(submission: Submission) -> None:
        await answers.wait()
        taken.append(submission.request_id)

    monkeypatch.setattr(backend, "submit", late)
    app = create_app(backend, served_model(), GatewayLimits(submit_s=0.01))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.post(CHAT, json=chat_body())
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert backend.cancelled == []
    answers.set()
    await backend.cancel_seen.wait()
    assert backend.cancelled == taken


async def test_admission_that_does_not_say_whether_there_is_room_is_503(
    backend: HandPlayedBackend, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "check_room", asyncio.Event().wait)
    app = create_app(backend, served_model(), GatewayLimits(submit_s=0.01))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.post(CHAT, json=chat_body())
    assert (response.status_code, response.json()["error"]["code"]) == (503, "backend_lost")


@pytest.mark.parametrize("refusal", [QueueFull(8, 8, "requests", 3), CapacityExhausted(3)], ids=["queue", "capacity"])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_without_room_a_request_is_refused_before_it_is_tokenized(
    path: str, refusal: Exception, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.no_room = refusal
    # Were it tokenized, it would be told that it is too long.
    too_long = chat_body(messages=[{"role": "user", "content": "x" * 500}], prompt="x" * 500)
    response = await client.post(path, json=too_long)
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert backend.submissions == []


async def test_a_bad_body_is_told_whether_or_not_there_is_room(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.no_room = QueueFull(8, 8, "requests", 3)
    assert (await client.post(CHAT, json=chat_body(top_p=7))).status_code == 400
    assert (await client.post(CHAT, json=chat_body(model="other"))).status_code == 404
    assert backend.room_checks == 0


async def test_too_many_choices_name_their_field(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.refusal = TooManyChoices(9, 8)
    error = (await client.post(CHAT, json=chat_body(n=9, max_tokens=1))).json()["error"]
    assert error["param"] == "n"
    assert error["message"] == "n is 9, but at most 8 choices can run side by side: ask for at most 8"


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
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (499, "request_cancelled", "request_cancelled")
    assert error["message"] == "the request was cancelled on the server"
    assert "retry-after" not in response.headers


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
