"""The bytes of an answer: a stream's server-sent events, or the one object without streaming; chat and completions.

What never changes within a stream is formatted once; a delta costs one JSON string. Order: `opening`, then deltas,
notices and each choice's `finish`, then `ending` (usage if wanted, [DONE]), or `failure` and nothing after it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.errors import ApiError
from deploy.gateway.relay import Usage
from scheduler.messages import Notice

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_DONE = b"data: [DONE]\n\n"
_NOTICES = {notice: f": {notice}\n\n".encode() for notice in Notice}
KEEP_ALIVE = b": keep-alive\n\n"


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

    def __init__(self, head: AnswerHead, *, num_choices: int = 1, with_usage: bool = False) -> None:
        self._head = head
        self._with_usage = with_usage
        self._num_choices = num_choices
        self._around = [self._around_text(choice) for choice in range(num_choices)]

    def opening(self) -> bytes:
        """What goes out before the first token."""
        return b""

    def delta(self, choice: int, text: str) -> bytes:
        before, after = self._around[choice]
        return before + _to_json(text).encode() + after

    def notice(self, notice: Notice) -> bytes:
        """A comment: clients of the protocol skip it, people and proxies see that the stream lives."""
        return _NOTICES[notice]

    def finish(self, choice: int, finish_reason: str) -> bytes:
        return _event(self._chunk(self._choice(choice, None, finish_reason), None))

    def ending(self, usage: Usage) -> bytes:
        """Of the whole stream, when each choice has its finish."""
        return _event(self._chunk(None, usage)) + _DONE if self._with_usage else _DONE

    def failure(self, error: ApiError) -> bytes:
        return f"data: {error.to_json()}\n\n".encode()

    def whole(self, choices: Sequence[tuple[str, str]], usage: Usage) -> bytes:
        """The answer of a request that does not stream: text and finish reason of each choice, in index order."""
        told = [self._whole_choice(index, text, reason) for index, (text, reason) in enumerate(choices)]
        return _to_json({**self._object(self.whole_kind, told), "usage": _usage(usage)}).encode()

    def _around_text(self, choice: int) -> tuple[bytes, bytes]:
        before, after = _to_json(self._chunk(self._choice(choice, "\0", None), None)).split('"\\u0000"')
        return f"data: {before}".encode(), f"{after}\n\n".encode()

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

    def _choice(self, index: int, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        raise NotImplementedError

    def _whole_choice(self, index: int, text: str, finish_reason: str) -> dict[str, Any]:
        raise NotImplementedError


class ChatFrames(Frames):
    chunk_kind = "chat.completion.chunk"
    whole_kind = "chat.completion"

    def opening(self) -> bytes:
        role = {"delta": {"role": "assistant", "content": ""}}
        choices = ({**self._choice(index, None, None), **role} for index in range(self._num_choices))
        return b"".join(_event(self._chunk(choice, None)) for choice in choices)

    def _choice(self, index: int, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        delta = {} if text is None else {"content": text}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    def _whole_choice(self, index: int, text: str, finish_reason: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish_reason}


class CompletionFrames(Frames):
    chunk_kind = "text_completion"
    whole_kind = "text_completion"

    def _choice(self, index: int, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text or "", "logprobs": None, "finish_reason": finish_reason}

    def _whole_choice(self, index: int, text: str, finish_reason: str) -> dict[str, Any]:
        return self._choice(index, text, finish_reason)


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {_to_json(value)}\n\n".encode()


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "parks": usage.parks,
        "recomputes": usage.recomputes,
        "parked_seconds": round(usage.parked_s, 3),
    }


def parks_header(usage: Usage) -> str:
    """The value of X-Parkade-Parks: what the usage block says of parking, for those who do not read bodies."""
    return f"parks={usage.parks}; recomputes={usage.recomputes}; parked_seconds={usage.parked_s:.3f}"
