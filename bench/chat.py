"""One streamed chat or completion, watched: what it says, how often it was parked and resumed, and how it ended."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx

from bench.sse import Comment, Data, SseParser

TIMEOUT_S = 900.0


class ChatState(StrEnum):
    WAITING = "waiting"
    STREAMING = "streaming"
    PARKED = "parked"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """What is asked. Greedy, and never ended by an end token: its length is known beforehand.

    With `prompt`, token ids, it is no chat but a completion of exactly these. `request_id` is given to the server as
    the id by which the request can be steered; empty: the server chooses one.
    """

    name: str
    question: str = ""
    prompt: tuple[int, ...] = ()
    max_tokens: int
    priority: int = 0
    request_id: str = ""

    @property
    def path(self) -> str:
        return "/v1/completions" if self.prompt else "/v1/chat/completions"

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Request-Id": self.request_id} if self.request_id else {}

    def body(self, model: str) -> dict[str, object]:
        asked: dict[str, object] = (
            {"prompt": list(self.prompt)} if self.prompt else {"messages": [{"role": "user", "content": self.question}]}
        )
        return asked | {
            "model": model,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "priority": self.priority,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


@dataclass(slots=True, kw_only=True)
class ChatRun:
    """What has come so far. Times are seconds of the given clock; `parks` and `recomputes` are from the usage block,
    `parks_seen` from the comments in the stream. `request_id` is the one that the server answers with."""

    chat: Chat
    state: ChatState = ChatState.WAITING
    status: int | None = None
    request_id: str = ""
    text: str = ""
    num_events: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    parks: int = 0
    recomputes: int = 0
    parks_seen: int = 0
    resumes_seen: int = 0
    finish_reason: str | None = None
    error: str | None = None
    started: float = 0.0
    ended: float | None = None

    def take(self, event: Comment | Data) -> None:
        """Let one event change the picture."""
        if isinstance(event, Comment):
            self._take_comment(event.text)
        elif not event.is_done:
            self._take_data(json.loads(event.text))

    def _take_comment(self, text: str) -> None:
        if text.startswith("parked"):
            self.parks_seen += 1
            self.state = ChatState.PARKED
        elif text.startswith("resumed"):
            self.resumes_seen += 1
            self.state = ChatState.STREAMING

    def _take_data(self, data: dict[str, Any]) -> None:
        if "error" in data:
            self.error = str(data["error"].get("message"))
            return
        self.request_id = data.get("id") or self.request_id
        for choice in data.get("choices", ()):
            if content := choice.get("text") or choice.get("delta", {}).get("content"):
                self.text += content
                self.num_events += 1
                self.state = ChatState.STREAMING
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        if usage := data.get("usage"):
            self.prompt_tokens = usage["prompt_tokens"]
            self.completion_tokens = usage["completion_tokens"]
            self.parks = usage.get("parks", 0)
            self.recomputes = usage.get("recomputes", 0)

    def end(self, now: float) -> None:
        self.ended = now
        whole = self.error is None and self.status == 200 and self.finish_reason is not None
        self.state = ChatState.DONE if whole else ChatState.REFUSED
        if not whole and self.error is None:
            self.error = f"the stream ended without a finish reason (HTTP {self.status})"


async def run_chat(
    client: httpx.AsyncClient,
    url: str,
    model: str,
    chat: Chat,
    *,
    watch: Callable[[ChatRun], None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> ChatRun:
    """Stream one chat to its end. `watch` is called after every change. Refusals are in the result, not raised."""
    run = ChatRun(chat=chat, started=now())
    parser = SseParser()
    try:
        async with client.stream(
            "POST", url + chat.path, json=chat.body(model), headers=chat.headers, timeout=TIMEOUT_S
        ) as answer:
            run.status = answer.status_code
            if answer.status_code != 200:
                run.error = error_message(await answer.aread())
            else:
                async for block in answer.aiter_bytes():
                    for event in parser.feed(block):
                        run.take(event)
                    watch(run)
    except httpx.HTTPError as error:
        run.error = f"the connection broke: {type(error).__name__}"
    run.end(now())
    watch(run)
    return run


def error_message(body: bytes) -> str:
    """The message of an error answer in OpenAI's shape, or its first bytes."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
