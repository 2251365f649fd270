"""Token events into what a client reads: text deltas, notices, the end. Pure; the state of one request.

Each choice has a `ChoiceRelay` of its own. Stop strings are found there, so a choice may end before the engine ends it:
the rest of its tokens is dropped, and the request goes on for the sake of its siblings. Only when the last choice has
ended that way the relay is `ended_early`, which asks for a cancel. A failure of one choice ends the request.
"""

from collections.abc import Sequence
from typing import NamedTuple

from deploy.errors import ApiError, Cancelled, failed_request
from deploy.gateway.choice_relay import ChoiceRelay
from scheduler.messages import FinishReason, Notice, TokenEvent


class TextDelta(NamedTuple):
    choice: int
    text: str


class NoticeMark(NamedTuple):
    """For all choices."""

    notice: Notice


class ChoiceEnded(NamedTuple):
    """`finish_reason` is "stop" or "length"."""

    choice: int
    finish_reason: str


class Ended(NamedTuple):
    """The last update: every choice has ended, or else `failure` is what the client is told."""

    failure: ApiError | None = None


class Usage(NamedTuple):
    """What a request has cost. Every sampled token of every choice counts up to its end, also one that ends it and has
    no text; the prompt counts once, however often it was computed."""

    prompt_tokens: int
    completion_tokens: int
    parks: int
    recomputes: int
    parked_s: float


Update = TextDelta | NoticeMark | ChoiceEnded | Ended


class Relay:
    """Feed it events until it is `ended`; later ones are ignored. `choices` are fresh, one for each in index order."""

    def __init__(self, *, num_prompt_tokens: int, choices: Sequence[ChoiceRelay]) -> None:
        self.ended = False
        self._num_prompt_tokens = num_prompt_tokens
        self._choices = choices
        self._telling = set(range(len(choices)))  # choices whose end the client has not been told
        self._running = set(self._telling)  # choices that the engine has not ended
        self._parks = 0
        self._recomputes = 0
        self._parked_s = 0.0

    @property
    def ended_early(self) -> bool:
        """Ended while the engine still runs some of it."""
        return self.ended and bool(self._running)

    @property
    def usage(self) -> Usage:
        num_tokens = sum(choice.num_tokens for choice in self._choices)
        return Usage(self._num_prompt_tokens, num_tokens, self._parks, self._recomputes, self._parked_s)

    def feed(self, events: Sequence[TokenEvent]) -> list[Update]:
        """Updates in order; the text of neighbouring events of a choice is one delta."""
        updates: list[Update] = []
        texts: dict[int, str] = {}
        for event in events:
            if self.ended:
                break
            self._count(event)
            if event.notice is not None:
                _append_texts(updates, texts)
                updates.append(NoticeMark(event.notice))
            if event.choice in self._telling:
                self._tell(event, texts, updates)
            if event.finish is not None:
                self._running.discard(event.choice)
            if not self._telling and not self.ended:
                self.ended = True
                updates.append(Ended())
        _append_texts(updates, texts)
        return updates

    def _count(self, event: TokenEvent) -> None:
        if event.parks == 0:
            return
        self._parks = max(self._parks, event.parks)
        self._recomputes = max(self._recomputes, event.recomputes)
        self._parked_s = max(self._parked_s, event.parked_s)

    def _tell(self, event: TokenEvent, texts: dict[int, str], updates: list[Update]) -> None:
        index, choice = event.choice, self._choices[event.choice]
        text = texts.pop(index, "") + choice.push(event.tokens)
        if event.finish is not None and not choice.is_stopped:
            text += choice.rest()
        if not choice.is_stopped and event.finish is None:
            if text:
                texts[index] = text
            return
        _append_texts(updates, {index: text})
        failure = None if choice.is_stopped else _failure(event)
        if failure is not None:
            _append_texts(updates, texts)
            self.ended = True
            updates.append(Ended(failure))
            return
        self._telling.discard(index)
        updates.append(ChoiceEnded(index, "stop" if choice.is_stopped else str(event.finish)))


def _failure(event: TokenEvent) -> ApiError | None:
    if event.finish is FinishReason.CANCELLED:
        return Cancelled(event.error)
    if event.finish is FinishReason.ERROR:
        return failed_request(event.error or "the engine failed on this request")
    return None


def _append_texts(updates: list[Update], texts: dict[int, str]) -> None:
    """Empties `texts`."""
    updates += [TextDelta(choice, text) for choice, text in texts.items() if text]
    texts.clear()
