"""The body of POST /v1/completions."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from deploy.gateway.fields import GenerationFields
from deploy.gateway.prompt_room import require_prompt_fits
from deploy.gateway.served_model import ServedModel

DEFAULT_MAX_TOKENS = 16


def _is_token_ids(value: list[Any]) -> bool:
    return bool(value) and all(type(item) is int and item >= 0 for item in value)


def _read_prompt(value: object, info: ValidationInfo) -> str | tuple[int, ...]:
    """A text, or token ids; a list of one of either is unpacked. The context may be the model: more ids than it can
    hold are refused unseen, by `ContextExceeded`."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and type(value[0]) is int:
        if isinstance(info.context, ServedModel):
            require_prompt_fits(info.context, len(value), "prompt")
        if _is_token_ids(value):
            return tuple(value)
    raise PydanticCustomError("bounds", "out of bounds")


class CompletionRequest(GenerationFields):
    prompt: Annotated[str | tuple[int, ...], BeforeValidator(_read_prompt)]
