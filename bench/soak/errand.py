"""One request of a soak: what it asks, and what is done to it meanwhile. Pure; a seed gives it again."""

import random
from dataclasses import dataclass
from enum import StrEnum


class Fate(StrEnum):
    """What happens to it, besides running to its end."""

    LEFT_ALONE = "left alone"
    DISCONNECT = "disconnect"
    CANCEL = "cancel"
    PARK = "park and unpark"
    PARK_THEN_UNPARK = "park with a deadline that unparks"
    PARK_THEN_CANCEL = "park with a deadline that cancels"
    PRIORITY = "priority"


class Order(StrEnum):
    """What a client may tell a server about a living request."""

    PARK = "park"
    UNPARK = "unpark"
    PARK_THEN_UNPARK = "park, then unpark"
    PARK_THEN_CANCEL = "park, then cancel"
    CANCEL = "cancel"
    PRIORITY = "change its priority"


# So many of each in a thousand, about.
WEIGHTS = {
    Fate.LEFT_ALONE: 400,
    Fate.DISCONNECT: 120,
    Fate.CANCEL: 120,
    Fate.PARK: 160,
    Fate.PARK_THEN_UNPARK: 60,
    Fate.PARK_THEN_CANCEL: 40,
    Fate.PRIORITY: 100,
}
# Fates after which it need not have come to its own end.
CUT = (Fate.DISCONNECT, Fate.CANCEL, Fate.PARK_THEN_CANCEL)
NUM_PROMPTS = 24
NUM_SEEDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """`after_s` from its start until its fate comes, `pause_s` from a park to its end. Choice i draws with seed + i."""

    number: int
    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    n: int
    seed: int
    priority: int
    stream: bool
    fate: Fate
    after_s: float
    pause_s: float

    def body(self, model: str) -> dict[str, object]:
        asked: dict[str, object] = {
            "model": model,
            "prompt": list(self.prompt),
            "max_tokens": self.max_tokens,
            "n": self.n,
            "seed": self.seed,
            "temperature": 1.0,
            "ignore_eos": True,
            "priority": self.priority,
            "stream": self.stream,
        }
        return asked | ({"stream_options": {"include_usage": True}} if self.stream else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakBounds:
    """Sizes in tokens."""

    vocab_size: int
    max_prompt: int = 200
    max_answer: int = 120
    max_choices: int = 3


def draw_errands(count: int, bounds: SoakBounds, seed: int = 0) -> list[Errand]:
    """Prompts come from a small bank and seeds from a small range, so that many requests must say the same."""
    draw = random.Random(seed)
    bank = [
        tuple(draw.randrange(100, bounds.vocab_size) for _ in range(draw.randint(4, bounds.max_prompt)))
        for _ in range(NUM_PROMPTS)
    ]
    fates, weights = list(WEIGHTS), list(WEIGHTS.values())
    return [
        Errand(
            number=number,
            request_id=f"soak-{seed}-{number}-{draw.getrandbits(64):016x}",
            prompt=draw.choice(bank),
            max_tokens=draw.randint(1, bounds.max_answer),
            n=draw.choice([1, 1, 1, 1, draw.randint(2, bounds.max_choices)]),
            seed=draw.randrange(NUM_SEEDS),
            priority=draw.choice([0, 0, 0, 0, -1, 1, 5]),
            stream=draw.random() < 0.7,
            fate=draw.choices(fates, weights)[0],
            after_s=draw.expovariate(1 / 0.3),
            pause_s=draw.uniform(0.05, 1.0),
        )
        for number in range(count)
    ]
