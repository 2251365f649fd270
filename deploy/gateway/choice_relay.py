"""One choice's tokens into its text, up to a stop string."""

from collections.abc import Sequence

from deploy.text import Detokenizer, StopMatcher


class ChoiceRelay:
    """`push` its tokens, then ask for the `rest`. Once `is_stopped` nothing counts or has text any more."""

    def __init__(self, *, stop_token_ids: Sequence[int], detokenizer: Detokenizer, stops: Sequence[str]) -> None:
        self.num_tokens = 0
        self._stop_token_ids = frozenset(stop_token_ids)
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops) if stops else None

    @property
    def is_stopped(self) -> bool:
        """A stop string was found."""
        return self._matcher is not None and self._matcher.matched is not None

    def push(self, tokens: Sequence[int]) -> str:
        """The text that is certain now."""
        text = ""
        for token_id in tokens:
            self.num_tokens += 1
            if token_id in self._stop_token_ids:
                continue  # it ends the answer and is no part of it
            piece = self._detokenizer.push(token_id)
            if self._matcher is None:
                text += piece
                continue
            text += self._matcher.push(piece)
            if self._matcher.matched is not None:
                break
        return text

    def rest(self) -> str:
        """What was held back, at the end of the tokens. It may turn out to complete a stop string."""
        rest = self._detokenizer.flush()
        if self._matcher is None:
            return rest
        return self._matcher.push(rest) + self._matcher.flush()
