"""How few tokens a text can become, told from its length alone: what is far too long need not be encoded to know it."""

import json
from typing import Any

from tokenizers import Tokenizer, models

# Canonical composition makes a text shorter by 3.5 at most: the longest spelling of U+0390 against its own two bytes.
_NFC_SHRINKS = 4


def most_bytes_per_token(tokenizer: Tokenizer, alphabet: frozenset[str]) -> int | None:
    """The most UTF-8 bytes of a text that one token stands for; None where this cannot be told for certain.

    It can for byte-level BPE whose vocabulary has all of `alphabet`, the stand-ins of the 256 bytes: nothing is dropped
    or unknown there, so the bytes of the tokens are those of the normalized text.
    """
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    shrinks = _shrinks(tokenizer.normalizer)
    added = tokenizer.get_added_tokens_decoder().values()
    if shrinks is None or not _keeps_every_byte(tokenizer) or not alphabet.issubset(vocab):
        return None
    if any(token.lstrip or token.rstrip for token in added):  # they swallow any number of spaces
        return None
    longest_added = max((len(token.content.encode()) for token in added), default=1)
    return shrinks * max(longest_added, *map(len, vocab))


def _shrinks(normalizer: Any) -> int | None:
    """By which factor it makes a text shorter at most."""
    if normalizer is None:
        return 1
    return _NFC_SHRINKS if _state(normalizer) == {"type": "NFC"} else None


def _keeps_every_byte(tokenizer: Tokenizer) -> bool:
    model = tokenizer.model
    if not isinstance(model, models.BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    if tokenizer.pre_tokenizer is None:
        return False
    state = _state(tokenizer.pre_tokenizer)
    steps = state["pretokenizers"] if state["type"] == "Sequence" else [state]
    return any(step["type"] == "ByteLevel" for step in steps) and all(_cuts_only(step) for step in steps)


def _cuts_only(step: dict[str, Any]) -> bool:
    return step["type"] in ("ByteLevel", "Digits") or (step["type"] == "Split" and step.get("behavior") != "Removed")


def _state(part: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(part.__getstate__())
    return state
