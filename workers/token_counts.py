"""How often each token occurs in a sequence's prompt and output; what penalties are computed from."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


class TokenCounts:
    """Grows by one token at a time in constant time. `ids` are the distinct tokens in order of first occurrence."""

    def __init__(self, prompt: Iterable[int], output: Iterable[int]) -> None:
        self._row_of: dict[int, int] = {}
        self._ids = np.zeros(64, dtype=np.int64)
        self._in_output = np.zeros(64, dtype=np.int64)
        for token in prompt:
            self._row(token)
        for token in output:
            self.append(token)

    def append(self, token: int) -> None:
        """Count one more token of the output."""
        row = self._row(token)
        self._in_output[row] += 1

    @property
    def ids(self) -> Int64:
        return self._ids[: len(self._row_of)]

    @property
    def in_output(self) -> Int64:
        """Occurrences of each of `ids` in the output alone."""
        return self._in_output[: len(self._row_of)]

    def _row(self, token: int) -> int:
        row = self._row_of.get(token)
        if row is None:
            row = self._row_of[token] = len(self._row_of)
            if row == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._in_output = np.concatenate([self._in_output, np.zeros_like(self._in_output)])
            self._ids[row] = token
        return row
