"""Eight chats of uneven lengths that do not fit the pool together. Pure; a seed gives them again."""

import random
from collections.abc import Callable
from dataclasses import dataclass

NUM_CHATS = 8
# So much of the pool, at least, do all chats need together; less would be no test of an order.
OVERFLOW = 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class SimChat:
    """Tokens, and when it comes, in seconds.

    `back_at`: it is held by an order from its first token on, until then; 0 for never held.
    """

    prompt_tokens: int
    answer_tokens: int
    at: float
    back_at: float = 0.0

    @property
    def num_tokens(self) -> int:
        return self.prompt_tokens + self.answer_tokens


def _uniform(draw: random.Random) -> int:
    return draw.randint(300, 6000)


def _heavy(draw: random.Random) -> int:
    """Most are short, one or two are very long."""
    return int(draw.lognormvariate(7.3, 0.9))


KINDS: dict[str, Callable[[random.Random], int]] = {"uniform": _uniform, "heavy": _heavy}


def draw_chats(kind: str, seed: int, pool_tokens: int) -> list[SimChat]:
    """All come within two seconds; each fits the pool alone."""
    draw = random.Random(f"{kind} {seed}")
    while True:
        chats = [
            SimChat(
                prompt_tokens=(prompt := draw.randint(50, 1000)),
                answer_tokens=min(max(100, KINDS[kind](draw)), pool_tokens - prompt),
                at=draw.uniform(0.0, 2.0),
            )
            for _ in range(NUM_CHATS)
        ]
        if sum(chat.num_tokens for chat in chats) >= OVERFLOW * pool_tokens:
            return sorted(chats, key=lambda chat: chat.at)
