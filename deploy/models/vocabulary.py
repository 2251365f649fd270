"""The tokenizer of a GGUF, as the files that Hugging Face folders hold.

A GGUF names its text splitter instead of holding it; `smollm` is: every digit alone, then GPT-2's byte-level words.
"""

import json
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_CONTROL = 3  # gguf.TokenType.CONTROL


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """`tokens` by id; `merges` in rank order, as "left right"; ids of special tokens."""

    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    bos_id: int
    eos_id: int
    unk_id: int
    pad_id: int
    chat_template: str

    @property
    def special_tokens(self) -> list[str]:
        return [token for token, kind in zip(self.tokens, self.token_types, strict=True) if kind == _CONTROL]


def tokenizer_json(vocabulary: Vocabulary) -> str:
    """The text of tokenizer.json."""
    merges = [tuple(merge.split(" ", 1)) for merge in vocabulary.merges]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(vocabulary.tokens)},
            merges=[(left, right) for left, right in merges],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(token, special=True, normalized=False) for token in vocabulary.special_tokens]
    tokenizer.add_special_tokens(specials)
    return tokenizer.to_str(pretty=True) + "\n"


def tokenizer_config(vocabulary: Vocabulary, max_positions: int) -> dict[str, Any]:
    return {
        "add_prefix_space": False,
        "bos_token": vocabulary.tokens[vocabulary.bos_id],
        "clean_up_tokenization_spaces": False,
        "eos_token": vocabulary.tokens[vocabulary.eos_id],
        "extra_special_tokens": [],
        "model_max_length": max_positions,
        "pad_token": vocabulary.tokens[vocabulary.pad_id],
        # The class that takes tokenizer.json as it is: GPT2Tokenizer would put its own splitter in, without the digits.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": vocabulary.tokens[vocabulary.unk_id],
    }


def special_tokens_map(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "additional_special_tokens": vocabulary.special_tokens,
        "bos_token": vocabulary.tokens[vocabulary.bos_id],
        "eos_token": vocabulary.tokens[vocabulary.eos_id],
        "pad_token": vocabulary.tokens[vocabulary.pad_id],
        "unk_token": vocabulary.tokens[vocabulary.unk_id],
    }


def as_json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
