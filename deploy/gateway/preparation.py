"""From a checked body to a submission: template, tokens, and the bounds that only the model can tell."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from deploy.errors import InvalidRequest, NotFound
from deploy.gateway.chat_request import ChatRequest
from deploy.gateway.completion_request import CompletionRequest
from deploy.gateway.fields import GenerationFields
from deploy.gateway.prompt_room import require_prompt_fits
from deploy.gateway.served_model import ServedModel
from deploy.text import RenderBudget, TemplateFailed
from scheduler.messages import Submission
from scheduler.sampling import SamplingParams, StopRules

# Below this a distribution is a single point in single precision, and dividing by it would overflow.
_COLDEST = 1e-5
NumberT = TypeVar("NumberT", int, float)


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
    return _encode(model, text, "messages", add_special_tokens=False)


def completion_tokens(model: ServedModel, request: CompletionRequest) -> list[int]:
    """Encode as the tokenizer would by itself, or check the ids given. May take long: not for the event loop."""
    if isinstance(request.prompt, str):
        tokens = _encode(model, request.prompt, "prompt", add_special_tokens=True)
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


def _encode(model: ServedModel, text: str, param: str, *, add_special_tokens: bool) -> list[int]:
    """Raises `ContextExceeded` without encoding where the text is too long whatever its tokens are."""
    require_prompt_fits(model, model.tokenizer.min_tokens(text), param, is_estimate=True)
    return model.tokenizer.encode(text, add_special_tokens=add_special_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionIds:
    """Whose a request is, and through which gateway."""

    request_id: str
    gateway_id: str
    owner: str


def build_submission(
    model: ServedModel, request: GenerationFields, tokens: list[int], *, max_tokens: int, ids: SubmissionIds
) -> Submission:
    """Raises `InvalidRequest` for biases outside the vocabulary."""
    ignore_eos = bool(request.ignore_eos)
    return Submission(
        request_id=ids.request_id,
        gateway_id=ids.gateway_id,
        owner=ids.owner,
        prompt_tokens=tuple(tokens),
        sampling=_sampling(model, request),
        stop=StopRules(
            max_tokens=max_tokens, stop_token_ids=() if ignore_eos else model.stop_token_ids, ignore_eos=ignore_eos
        ),
        priority=request.priority or 0,
        n=request.num_choices,
    )


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
