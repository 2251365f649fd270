"""Prompts of an exact length, over a tokenizer that merges nothing and one that cuts words in two."""

from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from bench.prompts import PromptMaker


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A token for every three characters or fewer: the length of a word matters, as in a real vocabulary."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(".{1,3}"), behavior="isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("num_tokens", [3, 64, 4000])
def test_a_prompt_has_exactly_as_many_tokens_as_asked(model_dir: Path, num_tokens: int) -> None:
    prompt = PromptMaker(model_dir).make(num_tokens)
    again = Tokenizer.from_file(str(model_dir / "tokenizer.json")).encode(prompt.text, add_special_tokens=False)
    assert len(prompt.tokens) == len(again.ids) == num_tokens


def test_prompts_differ_and_a_seed_repeats_them(model_dir: Path) -> None:
    first, second = (PromptMaker(model_dir, seed=1).make_many(4, 64) for _ in range(2))
    assert first == second
    assert len({prompt.text for prompt in first}) == 4


def test_an_impossible_length_is_an_error(model_dir: Path) -> None:
    with pytest.raises(ValueError, match="exactly 0 tokens"):
        PromptMaker(model_dir).make(0)
