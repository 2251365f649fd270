"""How fast the queue has been draining lately, from which a refused client is told when to come back."""

import math
from collections import deque


class DrainRate:
    """Requests and prompt tokens that left the queue for an engine within the last `window_s` seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._left: deque[tuple[float, int]] = deque()
        self._tokens = 0

    def note(self, now: float, num_tokens: int) -> None:
        self._left.append((now, num_tokens))
        self._tokens += num_tokens
        self._drop_old(now)

    def seconds_for(self, requests: int, tokens: int, now: float, longest_s: int) -> int:
        """Whole seconds until that many requests and tokens will have left, between 1 and `longest_s`."""
        self._drop_old(now)
        if not self._left:
            return longest_s
        by_requests = requests * self._window_s / len(self._left)
        by_tokens = tokens * self._window_s / max(1, self._tokens)
        return max(1, min(longest_s, math.ceil(max(by_requests, by_tokens))))

    def _drop_old(self, now: float) -> None:
        while self._left and self._left[0][0] <= now - self._window_s:
            _, num_tokens = self._left.popleft()
            self._tokens -= num_tokens
