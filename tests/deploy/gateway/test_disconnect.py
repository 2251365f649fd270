"""Clients that leave: their request is cancelled once, whenever it happens and however the answer was to be sent."""

import asyncio
from contextvars import ContextVar

import pytest
from fastapi import FastAPI

from scheduler.admission import DuplicateRequest
from scheduler.messages import FinishReason, Submission
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, OpenCall

CHAT = "/v1/chat/completions"


async def settled(app: FastAPI, call: OpenCall) -> None:
    await asyncio.wait_for(call.task, 5)
    async with app.router.lifespan_context(app):
        pass  # its end waits for cancels under way


async def test_headers_and_role_come_before_the_first_token(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    start = await call.next_message()
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert b'"role":"assistant"' in await call.next_piece()
    call.hang_up()
    await settled(app, call)


async def test_each_step_is_sent_when_it_comes_and_what_is_there_together_goes_together(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    await call.next_message()
    await call.next_piece()
    backend.send(text="a")
    assert (await call.next_piece()).count(b'"content":"a"') == 1
    backend.send(text="b")
    backend.send(text="c")
    backend.send(finish=FinishReason.STOP)
    last = await call.next_piece()
    assert last.count(b"data: ") == 3
    assert b'"content":"bc"' in last
    assert last.endswith(b"data: [DONE]\n\n")
    assert await call.next_piece() == b""
    await settled(app, call)
    assert backend.cancelled == []


async def test_leaving_a_stream_cancels_once(app: FastAPI, backend: HandPlayedBackend, chat_body: Body) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    await call.next_message()
    await call.next_piece()
    backend.send(text="a")
    await call.next_piece()
    call.hang_up()
    await settled(app, call)
    assert backend.cancelled == [backend.submissions[0].request_id]


async def test_leaving_before_the_first_token_cancels_once(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    call.hang_up()
    await settled(app, call)
    assert backend.cancelled == [backend.submissions[0].request_id]


async def test_leaving_without_a_stream_cancels_once(app: FastAPI, backend: HandPlayedBackend, chat_body: Body) -> None:
    call = OpenCall(app, CHAT, chat_body())
    await backend.submitted.wait()
    backend.send(text="a")
    call.hang_up()
    await settled(app, call)
    assert backend.cancelled == [backend.submissions[0].request_id]


async def test_a_server_that_fails_to_send_is_a_client_that_left(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    await call.next_message()
    await call.next_piece()
    call.send_error = OSError("broken pipe")
    backend.send(text="a")
    await settled(app, call)
    assert backend.cancelled == [backend.submissions[0].request_id]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_cancels_the_call_cancels_the_request(
    stream: bool, app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=stream))
    await backend.submitted.wait()
    if stream:
        await call.next_message()
    call.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.task
    await backend.cancel_seen.wait()
    assert backend.cancelled == [backend.submissions[0].request_id]


@pytest.mark.parametrize("refused", [False, True])
async def test_leaving_while_admission_thinks_cancels_what_it_then_accepts_and_nothing_else(
    refused: bool, app: FastAPI, backend: HandPlayedBackend, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = asyncio.Event(), asyncio.Event()

    async def slow(submission: Submission) -> None:
        asked.set()
        await answers.wait()
        if refused:
            raise DuplicateRequest(submission.request_id)

    monkeypatch.setattr(backend, "submit", slow)
    call = OpenCall(app, CHAT, chat_body(), [(b"x-request-id", b"mine")])
    await asked.wait()
    call.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.task
    assert backend.cancelled == []
    answers.set()
    async with app.router.lifespan_context(app):
        pass
    assert backend.cancelled == ([] if refused else ["mine"])


async def test_leaving_as_the_end_arrives_cancels_nothing(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body())
    await backend.submitted.wait()
    backend.send(text="a", finish=FinishReason.STOP)
    assert (await call.next_message())["status"] == 200
    call.hang_up()
    await settled(app, call)
    assert backend.cancelled == []


async def test_a_storm_of_leavers_leaves_no_task_behind(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    before = asyncio.all_tasks()
    calls = [OpenCall(app, CHAT, chat_body(stream=index % 2 == 0)) for index in range(20)]
    for call in calls:
        call.hang_up()
    await asyncio.gather(*(call.task for call in calls))
    async with app.router.lifespan_context(app):
        pass
    assert sorted(backend.cancelled) == sorted(submission.request_id for submission in backend.submissions)
    assert len(backend.cancelled) == 20
    assert asyncio.all_tasks() == before


async def test_a_stop_string_in_a_stream_cancels_once_and_leaks_nothing(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True, stop=["END"]))
    await call.next_message()
    await call.next_piece()
    backend.send(text="one E")
    assert b'"content":"one "' in await call.next_piece()
    backend.send(text="N")
    backend.send(text="D and more")
    last = await call.next_piece()
    assert b"content" not in last
    assert b'"finish_reason":"stop"' in last
    assert last.endswith(b"data: [DONE]\n\n")
    await settled(app, call)
    assert backend.cancelled == [backend.submissions[0].request_id]


async def test_an_emoji_over_steps_comes_whole(app: FastAPI, backend: HandPlayedBackend, chat_body: Body) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    await call.next_message()
    await call.next_piece()
    for byte in "😀".encode():
        backend.send(text=bytes([byte]))
    assert '"content":"😀"'.encode() in await call.next_piece()
    backend.send(text="é".encode()[:1])
    backend.send(finish=FinishReason.LENGTH)
    assert '"content":"\N{REPLACEMENT CHARACTER}"'.encode() in await call.next_piece()
    await settled(app, call)


async def test_a_cancel_does_not_run_in_the_context_of_its_request(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_id: ContextVar[str] = ContextVar("call_id", default="none")
    seen: list[str] = []

    async def note(request_id: str) -> None:
        seen.append(call_id.get())

    monkeypatch.setattr(backend, "cancel", note)
    call_id.set("the call that is being cancelled")
    call = OpenCall(app, CHAT, chat_body(stream=True))
    call.hang_up()
    await settled(app, call)
    assert seen == ["none"]
