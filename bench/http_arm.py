"""An OpenAI-compatible server as an arm. The client counts and does not parse: it shares the cores with the server.

A plain asyncio socket per stream: an HTTP library costs 0.1 to 0.2 ms an event, which at 16 streams is a good part of a
core taken from whoever is measured. Numbers of tokens are read once, from the usage block at the end.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from bench.prompts import Prompt
from bench.streams import StreamError, StreamRecord

READ_BYTES = 65536
# A usage block and the end marker fit into this many last bytes of a stream.
TAIL_BYTES = 4096


class HttpArm:
    """`POST {url}/v1/completions`, one connection a stream. `extra` joins the body: a server's own switches."""

    def __init__(
        self, name: str, url: str, model: str, *, extra: Mapping[str, object] | None = None, timeout_s: float = 600.0
    ) -> None:
        self.name = name
        parts = urlsplit(url)
        if parts.hostname is None or parts.scheme not in {"http", "https"}:
            raise ValueError(f"{url!r} is no http URL")
        self._host, self._is_tls = parts.hostname, parts.scheme == "https"
        self._port = parts.port or (443 if self._is_tls else 80)
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/v1/completions"
        self._model, self._extra, self._timeout_s = model, dict(extra or {}), timeout_s

    async def stream(self, prompt: Prompt, max_tokens: int) -> StreamRecord:
        """Raises `StreamError` when the server refuses, stops early or does not end within `timeout_s`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._stream(prompt, max_tokens)
        except (OSError, EOFError, TimeoutError) as error:
            raise StreamError(f"{self.name}: {type(error).__name__} while streaming") from error

    async def _stream(self, prompt: Prompt, max_tokens: int) -> StreamRecord:
        started = time.perf_counter()
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._is_tls or None)
        try:
            writer.write(self._request(prompt, max_tokens))
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                body = (await reader.read(READ_BYTES)).decode(errors="replace")
                raise StreamError(f"{self.name}: {head.splitlines()[0].decode()}: {body.strip()[:300]}")
            arrivals, tail = await _count(reader)
        finally:
            writer.close()
        return self._record(started, arrivals, tail, max_tokens)

    def _request(self, prompt: Prompt, max_tokens: int) -> bytes:
        fields = {
            "model": self._model,
            "prompt": prompt.text,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body = json.dumps(fields | self._extra).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body

    def _record(self, started: float, arrivals: list[tuple[float, int]], tail: bytes, max_tokens: int) -> StreamRecord:
        prompt_tokens, completion_tokens = usage_of(tail)
        if completion_tokens != max_tokens or not arrivals:
            raise StreamError(f"{self.name}: {completion_tokens} tokens came, {max_tokens} were asked for")
        return StreamRecord(
            started=started,
            arrivals=tuple(arrivals),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )


async def _count(reader: asyncio.StreamReader) -> tuple[list[tuple[float, int]], bytes]:
    """Arrivals of events until the end marker, and the stream's last bytes."""
    arrivals: list[tuple[float, int]] = []
    tail = b""
    while b"data: [DONE]" not in tail[-64:]:
        block = await reader.read(READ_BYTES)
        if not block:
            break
        now = time.perf_counter()
        if count := num_events(block):
            arrivals.append((now, count))
        tail = (tail + block)[-TAIL_BYTES:]
    return arrivals, tail


def num_events(block: bytes) -> int:
    """Events that carry a choice: not the usage block, not the end marker. One cut by a read counts where it begins."""
    return block.count(b"data: {") - block.count(b'"choices":[]') - block.count(b'"choices": []')


def usage_of(tail: bytes) -> tuple[int, int]:
    """(prompt tokens, completion tokens) of the last usage block in the bytes. Raises `StreamError` without one."""
    prompt = re.findall(rb'"prompt_tokens":\s*(\d+)', tail)
    completion = re.findall(rb'"completion_tokens":\s*(\d+)', tail)
    if not prompt or not completion:
        raise StreamError("the stream ended without a usage block; " + tail[-200:].decode(errors="replace").strip())
    return int(prompt[-1]), int(completion[-1])
