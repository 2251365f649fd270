"""Prompts of an exact number of tokens, different for each stream and round, so that no prefix is shared."""

import random
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

VOCABULARY = """
river stone window garden market winter silver paper music station bridge letter summer forest
engine doctor island captain kitchen village morning picture history science teacher company journey
weather mountain library building machine student question answer number family friend country water
light house street school night story world
"""
TRIES_PER_TOKEN = 4
# No word, with the space before it, has more tokens with any tokenizer: it has no more bytes.
MAX_WORD_TOKENS = 9
WORDS = tuple(VOCABULARY.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The same prompt as text, for HTTP, and as tokens, for an engine."""

    text: str
    tokens: tuple[int, ...]


class PromptMaker:
    """Random words out of a seeded generator, as many as make the number of tokens asked for."""

    def __init__(self, model_dir: Path, seed: int = 0) -> None:
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._random = random.Random(seed)

    def make(self, num_tokens: int) -> Prompt:
        """Raises `ValueError` when no text of exactly `num_tokens` tokens was found."""
        text = self._random.choice(WORDS).capitalize()
        for _ in range(TRIES_PER_TOKEN * num_tokens):
            tokens = self._encode(text)
            if len(tokens) == num_tokens:
                return Prompt(text=text, tokens=tokens)
            if len(tokens) > num_tokens:
                # Back by several words: from one word back there may be no word of just the length that is missing.
                text = text.rsplit(" ", 3)[0]
                num_words = 1
            else:  # many at once: a prompt of thousands is not to be encoded for each of its words
                num_words = max(1, (num_tokens - len(tokens)) // MAX_WORD_TOKENS)
            text += "".join(f" {self._random.choice(WORDS)}" for _ in range(num_words))
        raise ValueError(f"no prompt of exactly {num_tokens} tokens was found with this tokenizer")

    def make_many(self, count: int, num_tokens: int) -> list[Prompt]:
        return [self.make(num_tokens) for _ in range(count)]

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
