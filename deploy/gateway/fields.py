"""The fields that chat and completions share: strict types, bounds, and for each of them a sentence for its errors."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_MESSAGES = 16_384
MAX_PARTS = 16_384
MAX_STOPS = 16
MAX_STOP_CHARS = 1_024
MAX_LOGIT_BIAS = 1_024
MAX_CHOICES = 128
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_SMALLEST_PENALTY = 1e-6

# What each field must be, in words. An error says "'field' must be ...".
BOUNDS: Mapping[str, str] = {
    "model": "the id of the served model, a string; GET /v1/models lists it",
    "temperature": "a number in [0, 2]; 0 always takes the likeliest token",
    "top_p": "a number in (0, 1]; 1 turns it off",
    "top_k": f"an integer in [-1, {INT32_MAX}]; 0 or -1 turns it off",
    "min_p": "a number in [0, 1]; 0 turns it off",
    "repetition_penalty": "a number in [0.000001, 1000]; 1 turns it off",
    "presence_penalty": "a number in [-2, 2]; 0 turns it off",
    "frequency_penalty": "a number in [-2, 2]; 0 turns it off",
    "logit_bias": f"an object of at most {MAX_LOGIT_BIAS} pairs of a token id in quotes and a number in [-100, 100]",
    "seed": "an integer of 64 bits; leave it out for a random one",
    "stop": f"a non-empty string or a list of at most {MAX_STOPS} of them, each of at most {MAX_STOP_CHARS} characters",
    "max_tokens": f"an integer in [1, {INT32_MAX}]; leave it out for the default",
    "max_completion_tokens": f"an integer in [1, {INT32_MAX}]; leave it out for all the room there is",
    "ignore_eos": "true or false",
    "priority": "an integer of 32 bits; higher wins, 0 is the default",
    "n": f"an integer in [1, {MAX_CHOICES}], the number of answers to the one prompt; 1 is the default",
    "stream": "true or false",
    "stream_options": 'an object such as {"include_usage": true}, together with "stream": true',
    "messages": f"a list of at most {MAX_MESSAGES} messages, each an object with role and content",
    "prompt": "a string, a list of one string, or a list of token ids; send several requests for several prompts",
}


def _is_off(value: object) -> bool:
    return value is None or value is False or value in (0, "", [], {})


# Fields of other servers that would change the answer, and when they would not. Anything else unknown is ignored.
_UNSUPPORTED: Mapping[str, Callable[[Any], bool]] = {
    "best_of": lambda value: value is None or value == 1,
    "logprobs": lambda value: value is None or value is False,
    "top_logprobs": _is_off,
    "prompt_logprobs": lambda value: value is None,
    "echo": _is_off,
    "suffix": _is_off,
    "tools": _is_off,
    "functions": _is_off,
    "tool_choice": lambda value: value in (None, "none", "auto"),
    "function_call": lambda value: value in (None, "none", "auto"),
    "response_format": lambda value: value is None or value == {"type": "text"},
    "modalities": lambda value: value is None or value == ["text"],
    "audio": _is_off,
    "use_beam_search": _is_off,
    "min_tokens": _is_off,
    "stop_token_ids": _is_off,
    "bad_words": _is_off,
    "allowed_token_ids": _is_off,
    "include_stop_str_in_output": _is_off,
    "guided_json": _is_off,
    "guided_regex": _is_off,
    "guided_choice": _is_off,
    "guided_grammar": _is_off,
    "structured_outputs": _is_off,
    "chat_template": _is_off,
    "chat_template_kwargs": _is_off,
    "continue_final_message": _is_off,
}


def wrong(message: str, param: str) -> PydanticCustomError:
    """An error that carries its own whole message and names another field than the one being read."""
    return PydanticCustomError("parkade", "{text}", {"text": message, "param": param})


def _out_of_bounds() -> PydanticCustomError:
    return PydanticCustomError("bounds", "out of bounds")


def _read_stop(value: object) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise _out_of_bounds()
    for stop in stops:
        if not isinstance(stop, str) or not 0 < len(stop) <= MAX_STOP_CHARS:
            raise _out_of_bounds()
    return tuple(stops)


def _read_logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MAX_LOGIT_BIAS:
        raise _out_of_bounds()
    biases: dict[int, float] = {}
    for key, bias in value.items():
        is_id = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not is_id or not is_number or not -100 <= bias <= 100:  # NaN fails the comparison too
            raise _out_of_bounds()
        biases[int(key)] = float(bias)
    return tuple(sorted(biases.items()))


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None


class CheckedBody(BaseModel):
    """A request body. `bounds` says of each field in words what it must be."""

    bounds: ClassVar[Mapping[str, str]]


class GenerationFields(CheckedBody):
    """A field that is absent or null takes its default."""

    bounds = BOUNDS
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=_SMALLEST_PENALTY, le=1000)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Annotated[tuple[tuple[int, float], ...], BeforeValidator(_read_logit_bias)] = ()
    seed: Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)] | None = None
    stop: Annotated[tuple[str, ...], BeforeValidator(_read_stop)] = ()
    max_tokens: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    ignore_eos: bool | None = None
    priority: Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, is_inactive in _UNSUPPORTED.items():
                if name in data and not is_inactive(data[name]):
                    raise wrong(f"'{name}' is not supported by this server; leave it out", name)
        return data

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> "GenerationFields":
        if self.stream_options is not None and not self.stream:
            raise wrong(f"'stream_options' must be {BOUNDS['stream_options']}", "stream_options")
        return self

    @property
    def num_choices(self) -> int:
        return self.n or 1

    @property
    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)
