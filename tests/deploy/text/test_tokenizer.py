"""Text to ids: special tokens only where they belong, and folders that cannot be used."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, processors

from deploy.text import BadTokenizer, TextTokenizer
from tests.deploy.text.tokenizers_of_both_kinds import byte_level


def with_bos() -> Tokenizer:
    tokenizer = byte_level()
    bos = tokenizer.token_to_id("<s>")
    assert bos is not None
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return tokenizer


def test_bos_comes_only_when_asked_for_and_only_from_the_post_processor() -> None:
    tokenizer = TextTokenizer(with_bos())
    plain = tokenizer.encode("cat", add_special_tokens=False)
    assert tokenizer.encode("cat", add_special_tokens=True) == [tokenizer.token_id("<s>"), *plain]
    without = TextTokenizer(byte_level())
    assert without.encode("cat", add_special_tokens=True) == without.encode("cat", add_special_tokens=False)


def test_special_tokens_written_out_become_their_ids() -> None:
    tokenizer = TextTokenizer(byte_level())
    assert tokenizer.encode("</s>", add_special_tokens=False) == [tokenizer.token_id("</s>")]


def test_a_length_limit_in_the_file_does_not_cut_prompts() -> None:
    source = byte_level()
    source.enable_truncation(2)
    source.enable_padding(length=8)
    assert (
        TextTokenizer(source).decode(TextTokenizer(source).encode("a long text", add_special_tokens=True))
        == "a long text"
    )


def test_a_folder_is_read(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    tokenizer = TextTokenizer.from_dir(tmp_path)
    assert tokenizer.num_tokens == byte_level().get_vocab_size()


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTokenizer, match=r"tokenizer\.json does not exist"):
        TextTokenizer.from_dir(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(BadTokenizer, match=r"tokenizer\.json is not a readable tokenizer"):
        TextTokenizer.from_dir(tmp_path)
