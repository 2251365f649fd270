"""The model as clients see it: its name, its text side, its bounds and its defaults."""

import json
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deploy.gateway.fields import BOUNDS, GenerationFields
from deploy.text import BadTokenizer, ChatTemplate, TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """What a request gets where it says nothing: the model's `generation_config.json`, else OpenAI's defaults."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """`max_model_len` bounds prompt and answer together, in tokens; `pool_tokens` is what the KV pool of a group holds,
    in pages of `page_size`.

    Token ids of requests lie in [0, vocab_size). `stop_token_ids` end an answer. Without a `template` there is no chat.
    """

    model_id: str
    tokenizer: TextTokenizer
    template: ChatTemplate | None
    max_model_len: int
    pool_tokens: int
    vocab_size: int
    page_size: int = 1
    stop_token_ids: tuple[int, ...] = ()
    defaults: SamplingDefaults = field(default_factory=SamplingDefaults)
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def max_tokens(self) -> int:
        """The longest that prompt and answer can be together."""
        return min(self.max_model_len, self.pool_tokens)


def load_served_model(
    model_dir: Path, *, model_id: str, max_model_len: int, pool_tokens: int, page_size: int = 1
) -> ServedModel:
    """Read the text side of a Hugging Face folder. Raises `TextError` when it is unusable."""
    config = _read_json(model_dir / "config.json")
    generation = _read_json(model_dir / "generation_config.json")
    tokenizer = TextTokenizer.from_dir(model_dir)
    return ServedModel(
        model_id=model_id,
        tokenizer=tokenizer,
        template=ChatTemplate.from_dir(model_dir),
        max_model_len=max_model_len,
        pool_tokens=pool_tokens,
        page_size=page_size,
        vocab_size=int(config.get("vocab_size", tokenizer.num_tokens)),
        stop_token_ids=_stop_token_ids(config, generation),
        defaults=_defaults(generation),
    )


def _read_json(path: Path) -> dict[str, Any]:
    """An absent file is an empty object."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadTokenizer(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadTokenizer(f"{path} holds no JSON object")
    return value


def _stop_token_ids(config: dict[str, Any], generation: dict[str, Any]) -> tuple[int, ...]:
    """`eos_token_id` of both files: one id, a list of them, or none."""
    found: set[int] = set()
    for source in (config, generation):
        value = source.get("eos_token_id")
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return tuple(sorted(int(token_id) for token_id in found))


def _defaults(generation: dict[str, Any]) -> SamplingDefaults:
    """Checked like a request's own fields, so that a bad file stops the start and not the first request."""
    names = [field.name for field in fields(SamplingDefaults)]
    given = {name: generation[name] for name in names if generation.get(name) is not None}
    try:
        checked = GenerationFields.model_validate({"model": "", **given})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise BadTokenizer(f"generation_config.json: {name} must be {BOUNDS[name]}") from None
    return SamplingDefaults(**{name: getattr(checked, name) for name in given})
