"""Token events into what a client reads: text deltas, notices, the end. Pure; the state of one request.

Stop strings are found here, so the relay may end a request before the engine does: `ended_early` asks for a cancel.
"""

from collections.abc import Sequence
from typing import NamedTuple

from deploy.text import Detokenizer, StopMatcher
from scheduler.messages import FinishReason, Notice, TokenEvent


class TextDelta(NamedTuple):
    text: str


class NoticeMark(NamedTuple):
    notice: Notice


class Ended(NamedTuple):
    """`finish_reason` is "stop" or "length", or None for a failure, which `error` describes for the client."""

    finish_reason: str | None
    error: str | None = None


class Usage(NamedTuple):
    """What a request has cost. Every sampled token counts, also one that ends the answer and has no text."""

    prompt_tokens: int
    completion_tokens: int
    parks: int
    parked_s: float


Update = TextDelta | NoticeMark | Ended


class Relay:
    """Feed it events until it is `ended`; later ones are ignored."""

    def __init__(
        self,
        *,
        num_prompt_tokens: int,
        stop_token_ids: Sequence[int],
        detokenizer: Detokenizer,
        stops: Sequence[str],
    ) -> None:
        self.ended = False
        self.ended_early = False
        self._num_prompt_tokens = num_prompt_tokens
        self._stop_token_ids = frozenset(stop_token_ids)
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops) if stops else None
        self._num_tokens = 0
        self._parks = 0
        self._parked_s = 0.0

    @property
    def usage(self) -> Usage:
        return Usage(self._num_prompt_tokens, self._num_tokens, self._parks, self._parked_s)

    def feed(self, events: Sequence[TokenEvent]) -> list[Update]:
        """Updates in order; the text of neighbouring events is one delta."""
        updates: list[Update] = []
        text = ""
        for event in events:
            if self.ended:
                break
            text += self._text_of(event)
            if event.notice is not None and not self.ended:
                _append_text(updates, text)
                text = ""
                updates.append(NoticeMark(event.notice))
            if event.finish is not None and not self.ended:
                text += self._rest()
                _append_text(updates, text)
                text = ""
                updates.append(self._end(event))
        _append_text(updates, text)
        if self.ended_early:
            updates.append(Ended("stop"))
        return updates

    def _text_of(self, event: TokenEvent) -> str:
        self._parks = max(self._parks, event.parks)
        self._parked_s = max(self._parked_s, event.parked_s)
        text = ""
        for token_id in event.tokens:
            self._num_tokens += 1
            if token_id in self._stop_token_ids:
                continue  # it ends the answer and is no part of it
            piece = self._detokenizer.push(token_id)
            if self._matcher is None:
                text += piece
                continue
            text += self._matcher.push(piece)
            if self._matcher.matched is not None:
                self.ended = self.ended_early = event.finish is None
                break
        return text

    def _rest(self) -> str:
        """What was held back, unless a stop string ended the answer on its very last token."""
        rest = self._detokenizer.flush()
        if self._matcher is None:
            return rest
        return self._matcher.push(rest) + self._matcher.flush()

    def _end(self, event: TokenEvent) -> Ended:
        self.ended = True
        if self._matcher is not None and self._matcher.matched is not None:
            return Ended("stop")
        if event.finish in (FinishReason.STOP, FinishReason.LENGTH):
            return Ended(str(event.finish))
        if event.finish is FinishReason.CANCELLED:
            return Ended(None, event.error or "the request was cancelled on the server")
        return Ended(None, event.error or "the engine failed on this request")


def _append_text(updates: list[Update], text: str) -> None:
    if text:
        updates.append(TextDelta(text))
