"""Finds stop strings in text that arrives in pieces. What could still become one is held back, the rest goes out.

The stop that completes first wins; of those completing at the same character the longest wins, so that no part of it
leaks. One Knuth-Morris-Pratt automaton a stop: the cost of a character does not depend on the length of the stops.
"""

from collections.abc import Sequence


def _borders(pattern: str) -> list[int]:
    """borders[i]: length of the longest proper prefix of pattern[:i + 1] that is also its suffix."""
    borders = [0] * len(pattern)
    length = 0
    for i in range(1, len(pattern)):
        while length and pattern[i] != pattern[length]:
            length = borders[length - 1]
        if pattern[i] == pattern[length]:
            length += 1
        borders[i] = length
    return borders


class StopMatcher:
    """Feed text with `push`; `matched` becomes the stop string found, after which nothing comes out any more.

    `stops` are non-empty strings; with none of them every piece passes unchanged.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.matched: str | None = None
        self._stops = tuple(stops)
        self._borders = [_borders(stop) for stop in self._stops]
        self._first_chars = frozenset(stop[0] for stop in self._stops)
        self._lengths = [0] * len(self._stops)  # characters of each stop matched by the end of the text so far
        self._held = ""

    def push(self, text: str) -> str:
        """The text that is now certain to belong to no stop string."""
        if self.matched is not None:
            return ""
        if not self._held and self._first_chars.isdisjoint(text):
            return text
        for position, char in enumerate(text):
            if (stop := self._step(char)) is not None:
                self.matched = stop
                seen = self._held + text[: position + 1]
                self._held = ""
                return seen[: -len(stop)]
        buffer = self._held + text
        keep_from = len(buffer) - max(self._lengths)
        self._held = buffer[keep_from:]
        return buffer[:keep_from]

    def flush(self) -> str:
        """The text held back, once no more can come."""
        held, self._held = self._held, ""
        return held

    def _step(self, char: str) -> str | None:
        """Advance every automaton by one character; the longest stop that completes here."""
        completed: str | None = None
        for index, stop in enumerate(self._stops):
            length = self._lengths[index]
            while length and stop[length] != char:
                length = self._borders[index][length - 1]
            if stop[length] == char:
                length += 1
            self._lengths[index] = length
            if length == len(stop) and (completed is None or len(stop) > len(completed)):
                completed = stop
        return completed
