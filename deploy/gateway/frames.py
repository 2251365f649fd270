"""The bytes of an answer: a stream's server-sent events, or the one object without streaming; chat and completions.

What never changes within a stream is formatted once; a delta costs one JSON string. Order: `opening`, deltas and
notices, `ending` (finish, usage if wanted, [DONE]), or `failure` and nothing after it.
"""

import json
from dataclasses import dataclass
from typing import Any

from deploy.errors import ApiError
from deploy.gateway.relay import Usage
from scheduler.messages import Notice

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_DONE = b"data: [DONE]\n\n"
_NOTICES = {notice: f": {notice}\n\n".encode() for notice in Notice}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """What every object of an answer repeats. `created` is in Unix seconds."""

    request_id: str
    model_id: str
    created: int


class Frames:
    """One stream's formatter; the two kinds below differ in names only."""

    chunk_kind: str
    whole_kind: str

    def __init__(self, head: AnswerHead, *, with_usage: bool = False) -> None:
        self._head = head
        self._with_usage = with_usage
        constant = self._chunk(self._choice("\0", None), None)
        before, after = _to_json(constant).split('"\\u0000"')
        self._before = f"data: {before}".encode()
        self._after = f"{after}\n\n".encode()

    def opening(self) -> bytes:
        """What goes out before the first token."""
        return b""

    def delta(self, text: str) -> bytes:
        return self._before + _to_json(text).encode() + self._after

    def notice(self, notice: Notice) -> bytes:
        """A comment: clients of the protocol skip it, people and proxies see that the stream lives."""
        return _NOTICES[notice]

    def ending(self, finish_reason: str, usage: Usage) -> bytes:
        frames = _event(self._chunk(self._choice(None, finish_reason), None))
        if self._with_usage:
            frames += _event(self._chunk(None, usage))
        return frames + _DONE

    def failure(self, error: ApiError) -> bytes:
        return f"data: {error.to_json()}\n\n".encode()

    def whole(self, text: str, finish_reason: str, usage: Usage) -> bytes:
        """The answer of a request that does not stream."""
        answer = self._object(self.whole_kind, [self._whole_choice(text, finish_reason)])
        return _to_json({**answer, "usage": _usage(usage)}).encode()

    def _chunk(self, choice: dict[str, Any] | None, usage: Usage | None) -> dict[str, Any]:
        chunk = self._object(self.chunk_kind, [] if choice is None else [choice])
        if self._with_usage:
            chunk["usage"] = None if usage is None else _usage(usage)
        return chunk

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = self._head
        return {
            "id": head.request_id,
            "object": kind,
            "created": head.created,
            "model": head.model_id,
            "choices": choices,
        }

    def _choice(self, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        raise NotImplementedError

    def _whole_choice(self, text: str, finish_reason: str) -> dict[str, Any]:
        raise NotImplementedError


class ChatFrames(Frames):
    chunk_kind = "chat.completion.chunk"
    whole_kind = "chat.completion"

    def opening(self) -> bytes:
        choice = {**self._choice(None, None), "delta": {"role": "assistant", "content": ""}}
        return _event(self._chunk(choice, None))

    def _choice(self, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        delta = {} if text is None else {"content": text}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    def _whole_choice(self, text: str, finish_reason: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}


class CompletionFrames(Frames):
    chunk_kind = "text_completion"
    whole_kind = "text_completion"

    def _choice(self, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text or "", "logprobs": None, "finish_reason": finish_reason}

    def _whole_choice(self, text: str, finish_reason: str) -> dict[str, Any]:
        return self._choice(text, finish_reason)


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {_to_json(value)}\n\n".encode()


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "parks": usage.parks,
        "parked_seconds": round(usage.parked_s, 3),
    }
