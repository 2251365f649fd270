"""The fewest tokens that a text can have: never more than it has."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from deploy.text import TextTokenizer
from tests.deploy.text.tokenizers_of_both_kinds import byte_fallback, byte_level

PLAIN = TextTokenizer(byte_level())


def composing() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


COMPOSING = TextTokenizer(composing())


@given(st.text(st.sampled_from("a t\u1fbe\u0308\u0301\u212b <think> é😀")))
def test_a_text_has_no_fewer_tokens_than_told(text: str) -> None:
    for tokenizer in (PLAIN, COMPOSING):
        assert tokenizer.min_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))


def test_a_long_text_has_many() -> None:
    assert PLAIN.min_tokens("") == 0
    assert PLAIN.min_tokens("x") == 1
    assert PLAIN.min_tokens("é" * 1_000) == -(-2_000 // len("<think> é".encode()))


def test_no_text_becomes_shorter_by_composition_than_is_reckoned_with() -> None:
    longest: dict[str, int] = {}
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for char in characters:
        parts = unicodedata.normalize("NFD", char)
        if len(parts) == 1:
            longest[parts] = max(longest.get(parts, 0), len(char.encode()))
    composed = [char for char in characters if unicodedata.normalize("NFC", char) == char]
    worst = max(sum(longest[part] for part in unicodedata.normalize("NFD", c)) / len(c.encode()) for c in composed)
    assert worst == 3.5


def with_a_token_that_strips(tokenizer: Tokenizer) -> None:
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True)])


def without_a_byte(tokenizer: Tokenizer) -> None:
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    del vocab["a"]
    tokenizer.model = models.BPE(vocab=vocab, merges=[])


def that_drops_spaces(tokenizer: Tokenizer) -> None:
    drop = pre_tokenizers.Split(" ", "removed")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([drop, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def that_normalizes(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])


@pytest.mark.parametrize("change", [with_a_token_that_strips, without_a_byte, that_drops_spaces, that_normalizes])
def test_what_may_lose_text_is_not_told(change: Any) -> None:
    tokenizer = byte_level()
    change(tokenizer)
    assert TextTokenizer(tokenizer).min_tokens("x" * 10_000) == 0


def test_other_vocabularies_are_not_told() -> None:
    assert TextTokenizer(byte_fallback()).min_tokens("x" * 10_000) == 0
