"""Token ids in, whole characters out, one token at a time.

A character whose bytes are spread over tokens is held back until it is complete; bytes that can never become one come
out as U+FFFD, at the latest from `flush`. Special tokens have no text. Joined pieces equal decoding all ids at once.
"""

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

# The longest run of tokens that a windowed decode waits for: a character has 4 bytes at most, the rest is for byte runs
# that begin with garbage.
_MAX_PENDING_TOKENS = 16
# Tokens before the first new one that the windowed decode sees: a leading space is kept as in the middle of a text.
_CONTEXT_TOKENS = 6
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer(Protocol):
    """The state of one stream."""

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes; "" while a character is incomplete."""
        ...

    def flush(self) -> str:
        """What is left of an incomplete character, as replacements."""
        ...


class ByteDetokenizer:
    """For byte-level vocabularies, where the bytes of a token never depend on its neighbours: exact and cheap."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def push(self, token_id: int) -> str:
        return self._decode(self._token_bytes(token_id))

    def flush(self) -> str:
        return self._decode(b"", final=True)


class WindowDetokenizer:
    """For every other vocabulary: decode a short window with and without the new token, and tell the difference."""

    def __init__(self, decode: Callable[[Sequence[int]], str], context: Sequence[int] = ()) -> None:
        self._decode = decode
        self._window = list(context[-_CONTEXT_TOKENS:])
        self._num_told = len(self._window)  # window[:num_told] has been told already; the rest is pending
        self._told_text = decode(self._window) if self._window else ""

    def push(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._decode(self._window)
        is_incomplete = text.endswith(_REPLACEMENT) and len(self._window) - self._num_told < _MAX_PENDING_TOKENS
        if is_incomplete or len(text) <= len(self._told_text):
            return ""
        return self._tell(text)

    def flush(self) -> str:
        text = self._decode(self._window)
        return self._tell(text) if len(text) > len(self._told_text) else ""

    def _tell(self, text: str) -> str:
        piece = text[len(self._told_text) :]
        self._window = self._window[self._num_told :]
        self._num_told = len(self._window)
        self._told_text = self._decode(self._window)
        return piece
