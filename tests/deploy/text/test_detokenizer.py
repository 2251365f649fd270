"""Tokens to text, one by one: whole characters only, and in the end what decoding all at once gives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.text import TextTokenizer
from deploy.text.detokenizer import ByteDetokenizer, WindowDetokenizer
from tests.deploy.text.tokenizers_of_both_kinds import TEXTS, byte_fallback, byte_level

BYTES = TextTokenizer(byte_level())
PIECES = TextTokenizer(byte_fallback())


def pieces_of(tokenizer: TextTokenizer, token_ids: list[int]) -> list[str]:
    stream = tokenizer.detokenizer()
    return [*(stream.push(token_id) for token_id in token_ids), stream.flush()]


def test_each_kind_of_tokenizer_gets_its_detokenizer() -> None:
    assert isinstance(BYTES.detokenizer(), ByteDetokenizer)
    assert isinstance(PIECES.detokenizer(), WindowDetokenizer)


@pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["byte-level", "byte-fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_joined_pieces_are_the_text_and_no_piece_holds_half_a_character(tokenizer: TextTokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = pieces_of(tokenizer, token_ids)
    assert "".join(pieces) == text == tokenizer.decode(token_ids)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)


@pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["byte-level", "byte-fallback"])
def test_a_character_over_four_tokens_comes_with_the_last_of_them(tokenizer: TextTokenizer) -> None:
    token_ids = tokenizer.encode("𝄞", add_special_tokens=False)[-4:]
    assert pieces_of(tokenizer, token_ids) == ["", "", "", "𝄞", ""]


@pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["byte-level", "byte-fallback"])
def test_an_incomplete_character_becomes_a_replacement_at_the_end_only(tokenizer: TextTokenizer) -> None:
    token_ids = tokenizer.encode("𝄞", add_special_tokens=False)[-4:-1]
    pieces = pieces_of(tokenizer, token_ids)
    assert pieces[:-1] == ["", "", ""]
    assert set(pieces[-1]) == {"\N{REPLACEMENT CHARACTER}"}


def test_endless_invalid_bytes_come_out_in_bounded_time() -> None:
    stray = PIECES.token_id("<0x80>")
    assert stray is not None
    pieces = pieces_of(PIECES, [stray] * 40)
    assert "".join(pieces) == "\N{REPLACEMENT CHARACTER}" * 40
    assert pieces[15] == "\N{REPLACEMENT CHARACTER}" * 16


def test_special_tokens_have_no_text_and_other_added_tokens_have_theirs() -> None:
    special, added = BYTES.token_id("</s>"), BYTES.token_id("<think> é")
    assert special is not None
    assert added is not None
    assert pieces_of(BYTES, [special, added, 10**6]) == ["", "<think> é", "", ""]


def test_a_leading_space_is_kept_after_a_prompt() -> None:
    first = PIECES.token_id("▁t")
    assert first is not None
    prompt = PIECES.encode("cat", add_special_tokens=False)
    assert PIECES.detokenizer(prompt).push(first) == " t"
    assert PIECES.detokenizer().push(first) == "t"


@given(st.lists(st.integers(0, BYTES.num_tokens - 1), max_size=30))
@settings(deadline=None)
def test_any_byte_level_ids_give_what_the_library_gives(token_ids: list[int]) -> None:
    assert "".join(pieces_of(BYTES, token_ids)) == BYTES.decode(token_ids)


@given(st.text(max_size=20))
@settings(deadline=None)
def test_any_text_survives_byte_fallback(text: str) -> None:
    token_ids = PIECES.encode(text, add_special_tokens=False)
    assert "".join(pieces_of(PIECES, token_ids)) == PIECES.decode(token_ids)
