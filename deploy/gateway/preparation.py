"""From a checked body to a submission: template, tokens, and the bounds that only the model can tell."""

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from deploy.errors import ContextExceeded, InvalidRequest, NotFound
from deploy.gateway.chat_request import ChatRequest
from deploy.gateway.completion_request import DEFAULT_MAX_TOKENS, CompletionRequest
from deploy.gateway.fields import GenerationFields
from deploy.gateway.served_model import ServedModel
from deploy.text import RenderBudget, TemplateFailed
from scheduler.messages import Submission
from scheduler.sampling import SamplingParams, StopRules

# Below this a distribution is a single point in single precision, and dividing by it would overflow.
_COLDEST = 1e-5
NumberT = TypeVar("NumberT", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRoom:
    """How many tokens an answer may have. `asked` is the client's own bound, under the name `field`."""

    asked: int | None
    field: str
    default: int | None = None


def require_model(model: ServedModel, model_id: str) -> None:
    """Raises `NotFound` for any other name than the served one."""
    if model_id != model.model_id:
        raise NotFound(
            f"the model does not exist here; this server serves '{model.model_id}'",
            param="model",
            code="model_not_found",
        )


def chat_tokens(model: ServedModel, request: ChatRequest, budget: RenderBudget) -> list[int]:
    """Render and encode. The template writes its own special tokens. May take long: not for the event loop."""
    if model.template is None:
        raise InvalidRequest(
            f"the model '{model.model_id}' has no chat template; use POST /v1/completions", param="model"
        )
    try:
        text = model.template.render([message.for_template() for message in request.messages], budget)
    except TemplateFailed as error:
        raise InvalidRequest(str(error), param="messages") from error
    return model.tokenizer.encode(text, add_special_tokens=False)


def completion_tokens(model: ServedModel, request: CompletionRequest) -> list[int]:
    """Encode as the tokenizer would by itself, or check the ids given. May take long: not for the event loop."""
    if isinstance(request.prompt, str):
        tokens = model.tokenizer.encode(request.prompt, add_special_tokens=True)
        if not tokens:
            raise InvalidRequest(
                "'prompt' must hold at least 1 token; it is empty", param="prompt", code="empty_string"
            )
        return tokens
    largest = max(request.prompt)
    if largest >= model.vocab_size:
        raise InvalidRequest(
            f"'prompt' holds a token id outside the vocabulary; ids lie in [0, {model.vocab_size})", param="prompt"
        )
    return list(request.prompt)


def chat_room(request: ChatRequest) -> AnswerRoom:
    if request.max_completion_tokens is not None:
        return AnswerRoom(asked=request.max_completion_tokens, field="max_completion_tokens")
    return AnswerRoom(asked=request.max_tokens, field="max_tokens")


def completion_room(request: CompletionRequest) -> AnswerRoom:
    return AnswerRoom(asked=request.max_tokens, field="max_tokens", default=DEFAULT_MAX_TOKENS)


def max_answer_tokens(model: ServedModel, num_prompt: int, room: AnswerRoom, prompt_field: str) -> int:
    """The bound of the answer. Raises `ContextExceeded` with both numbers when prompt or sum cannot fit."""
    limit, holder = model.max_model_len, "the model's length"
    if model.pool_tokens < limit:
        limit, holder = model.pool_tokens, "the KV pool"
    if num_prompt >= limit:
        raise ContextExceeded(
            f"the prompt has {num_prompt} tokens and {holder} is {limit} tokens, of which the answer needs at least 1; "
            "shorten the prompt",
            param=prompt_field,
        )
    left = limit - num_prompt
    if room.asked is None:
        return left if room.default is None else min(left, room.default)
    if room.asked > left:
        raise ContextExceeded(
            f"{holder} is {limit} tokens, but {num_prompt + room.asked} are asked for: {num_prompt} of the prompt and "
            f"{room.asked} of '{room.field}'; shorten the prompt or ask for at most {left}",
            param=room.field,
        )
    return room.asked


def build_submission(
    model: ServedModel,
    request: GenerationFields,
    tokens: list[int],
    *,
    max_tokens: int,
    ids: tuple[str, str],
) -> Submission:
    """`ids` are the request's id and the gateway's. Raises `InvalidRequest` for biases outside the vocabulary."""
    ignore_eos = bool(request.ignore_eos)
    return Submission(
        request_id=ids[0],
        gateway_id=ids[1],
        prompt_tokens=tuple(tokens),
        sampling=_sampling(model, request),
        stop=StopRules(
            max_tokens=max_tokens, stop_token_ids=() if ignore_eos else model.stop_token_ids, ignore_eos=ignore_eos
        ),
        priority=request.priority or 0,
    )


def new_request_id(prefix: str) -> str:
    """Unguessable: who knows an id may one day steer its request."""
    return f"{prefix}-{uuid.uuid4().hex}"


def _sampling(
    model: ServedModel, request: GenerationFields, draw_seed: Callable[[int], int] = secrets.randbits
) -> SamplingParams:
    if request.logit_bias and request.logit_bias[-1][0] >= model.vocab_size:
        raise InvalidRequest(
            f"'logit_bias' names a token id outside the vocabulary; ids lie in [0, {model.vocab_size})",
            param="logit_bias",
        )
    defaults = model.defaults
    temperature = _given(request.temperature, defaults.temperature)
    top_k = _given(request.top_k, defaults.top_k)
    return SamplingParams(
        temperature=temperature if temperature >= _COLDEST else 0.0,
        top_k=top_k if 0 < top_k < model.vocab_size else 0,
        top_p=_given(request.top_p, defaults.top_p),
        min_p=_given(request.min_p, defaults.min_p),
        repetition_penalty=_given(request.repetition_penalty, defaults.repetition_penalty),
        presence_penalty=_given(request.presence_penalty, 0.0),
        frequency_penalty=_given(request.frequency_penalty, 0.0),
        logit_bias=request.logit_bias,
        seed=draw_seed(63) if request.seed is None else request.seed,
    )


def _given(value: NumberT | None, default: NumberT) -> NumberT:
    return default if value is None else value
