"""A watched chat: states, counts, and how it ends, event by event and over a socketless server."""

import json

import httpx
import pytest

from bench.chat import Chat, ChatRun, ChatState, error_message, run_chat
from bench.sse import Comment, Data

CHAT = Chat(name="harbour", question="How?", max_tokens=3, priority=10)


def delta(content: str | None = None, finish_reason: str | None = None) -> Data:
    fields = {} if content is None else {"content": content}
    return Data(json.dumps({"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}))


def usage(parks: int = 0) -> Data:
    return Data(json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "parks": parks}}))


def run_of(*events: Comment | Data, status: int = 200) -> ChatRun:
    run = ChatRun(chat=CHAT, status=status)
    for event in events:
        run.take(event)
    return run


def test_a_chat_streams_is_parked_resumes_and_ends() -> None:
    run = ChatRun(chat=CHAT, status=200)
    states = []
    for event in (delta("a"), Comment("parked"), Comment("resumed"), delta("b"), delta(None, "length"), usage(parks=1)):
        run.take(event)
        states.append(run.state)
    run.end(5.0)
    assert states[:4] == [ChatState.STREAMING, ChatState.PARKED, ChatState.STREAMING, ChatState.STREAMING]
    assert (run.state, run.text, run.finish_reason) == (ChatState.DONE, "ab", "length")
    assert (run.parks, run.parks_seen, run.resumes_seen) == (1, 1, 1)
    assert (run.prompt_tokens, run.completion_tokens, run.ended) == (7, 3, 5.0)


def test_a_role_chunk_is_no_token() -> None:
    assert run_of(delta("")).num_events == 0


def test_an_error_in_the_stream_makes_the_chat_refused() -> None:
    run = run_of(delta("a"), Data('{"error":{"message":"the KV pool is full"}}'), Data("[DONE]"))
    run.end(1.0)
    assert (run.state, run.error) == (ChatState.REFUSED, "the KV pool is full")


def test_a_stream_that_just_stops_is_refused_and_says_so() -> None:
    run = run_of(delta("a"))
    run.end(1.0)
    assert run.state is ChatState.REFUSED
    assert run.error == "the stream ended without a finish reason (HTTP 200)"


@pytest.mark.parametrize(
    ("body", "message"),
    [(b'{"error":{"message":"too long"}}', "too long"), (b"<html>", "<html>"), (b'{"error":1}', '{"error":1}')],
)
def test_an_error_answer_gives_its_message(body: bytes, message: str) -> None:
    assert error_message(body) == message


def client(status: int, body: bytes, asked: list[dict[str, object]]) -> httpx.AsyncClient:
    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(status, content=body)

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def test_a_chat_over_http_asks_greedily_and_is_watched() -> None:
    body = b"".join(f"data: {event.text}\n\n".encode() for event in (delta("a"), delta(None, "length"), usage()))
    asked: list[dict[str, object]] = []
    seen: list[ChatState] = []
    async with client(200, body, asked) as http:
        run = await run_chat(http, "http://x", "m", CHAT, watch=lambda run: seen.append(run.state), now=lambda: 4.0)
    assert (run.state, run.text, run.status) == (ChatState.DONE, "a", 200)
    assert seen[-1] is ChatState.DONE
    assert {name: asked[0][name] for name in ("model", "temperature", "ignore_eos", "priority", "max_tokens")} == {
        "model": "m",
        "temperature": 0,
        "ignore_eos": True,
        "priority": 10,
        "max_tokens": 3,
    }


async def test_a_refused_chat_keeps_status_and_message() -> None:
    async with client(400, b'{"error":{"message":"900 tokens do not fit"}}', []) as http:
        run = await run_chat(http, "http://x", "m", CHAT)
    assert (run.state, run.status, run.error) == (ChatState.REFUSED, 400, "900 tokens do not fit")


async def test_token_ids_make_a_completion_and_a_chosen_id_is_sent_and_told() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        event = {"id": "cmpl-mine", "choices": [{"index": 0, "text": "ab", "finish_reason": "length"}]}
        told = {"prompt_tokens": 2, "completion_tokens": 1, "parks": 2, "recomputes": 1}
        blocks = [event, {"choices": [], "usage": told}]
        return httpx.Response(200, content=b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in blocks))

    completion = Chat(name="x", prompt=(7, 8), max_tokens=1, request_id="mine")
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        run = await run_chat(http, "http://x", "m", completion)
    assert asked[0].url.path == "/v1/completions"
    assert asked[0].headers["x-request-id"] == "mine"
    body = json.loads(asked[0].content)
    assert (body["prompt"], "messages" in body) == ([7, 8], False)
    assert (run.request_id, run.text, run.parks, run.recomputes) == ("cmpl-mine", "ab", 2, 1)
