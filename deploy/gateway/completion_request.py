"""The body of POST /v1/completions."""

from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from deploy.gateway.fields import GenerationFields

DEFAULT_MAX_TOKENS = 16


def _is_token_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int and item >= 0 for item in value)


def _read_prompt(value: object) -> str | tuple[int, ...]:
    """A text, or token ids; a list of one of either is unpacked."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and _is_token_ids(value):
        return tuple(value)
    raise PydanticCustomError("bounds", "out of bounds")


class CompletionRequest(GenerationFields):
    prompt: Annotated[str | tuple[int, ...], BeforeValidator(_read_prompt)]
