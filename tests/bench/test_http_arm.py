"""The counting client against a socket that speaks like a server, cutting its answer where it likes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bench.http_arm import HttpArm, num_events, usage_of
from bench.prompts import Prompt
from bench.streams import StreamError

PROMPT = Prompt(text="River stone", tokens=(1, 2))


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def token(text: str) -> bytes:
    return event(id="x", choices=[{"index": 0, "text": text, "finish_reason": None}])


def usage(prompt: int, completion: int) -> bytes:
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion})


@asynccontextmanager
async def server(blocks: list[bytes], status: str = "200 OK") -> AsyncIterator[tuple[str, Callable[[], bytes]]]:
    """Answers every request with `blocks`, each in a write of its own; gives the URL and the last request's body."""
    bodies: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        bodies.append(await reader.readexactly(length))
        writer.write(f"HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\n\r\n".encode())
        for block in blocks:
            writer.write(block)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", lambda: bodies[-1]
    finally:
        listening.close()
        await listening.wait_closed()


async def test_a_stream_is_counted_and_its_usage_read() -> None:
    blocks = [token("a"), token("b") + token("c"), usage(2, 3), b"data: [DONE]\n\n"]
    async with server(blocks) as (url, _):
        record = await HttpArm("a", url, "m").stream(PROMPT, 3)
    assert (record.prompt_tokens, record.completion_tokens) == (2, 3)
    assert sum(count for _, count in record.arrivals) == 3
    assert record.started <= record.first <= record.ended


async def test_the_request_is_greedy_and_endless_and_takes_a_servers_own_switches() -> None:
    async with server([token("a"), usage(2, 1), b"data: [DONE]\n\n"]) as (url, last_body):
        await HttpArm("a", url + "/v1", "m", extra={"cache_prompt": False}).stream(PROMPT, 1)
        body = json.loads(last_body())
    assert (body["temperature"], body["ignore_eos"], body["stream"], body["cache_prompt"]) == (0, True, True, False)
    assert (body["prompt"], body["max_tokens"]) == ("River stone", 1)


async def test_a_refusal_is_an_error_with_status_and_message() -> None:
    async with server([b'{"error":{"message":"no such model"}}'], "404 Not Found") as (url, _):
        with pytest.raises(StreamError, match=r"404 Not Found.*no such model"):
            await HttpArm("a", url, "m").stream(PROMPT, 1)


async def test_too_few_tokens_are_an_error() -> None:
    async with server([token("a"), usage(2, 1), b"data: [DONE]\n\n"]) as (url, _):
        with pytest.raises(StreamError, match="1 tokens came, 8 were asked for"):
            await HttpArm("a", url, "m").stream(PROMPT, 8)


async def test_a_stream_cut_off_is_an_error() -> None:
    async with server([token("a")]) as (url, _):
        with pytest.raises(StreamError, match="without a usage block"):
            await HttpArm("a", url, "m").stream(PROMPT, 8)


def test_neither_the_usage_block_nor_the_end_marker_is_an_event() -> None:
    assert num_events(token("a") + usage(1, 1) + b"data: [DONE]\n\n") == 1
    assert num_events(b": parked\n\n") == 0


def test_the_last_usage_block_counts() -> None:
    assert usage_of(usage(5, 1) + usage(5, 2)) == (5, 2)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/", ""])
def test_what_is_no_http_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no http URL"):
        HttpArm("a", url, "m")
