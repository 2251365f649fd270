"""How long an answer may be: what the client asked for, within what the model and the KV pool can hold."""

from dataclasses import dataclass

from deploy.errors import ContextExceeded
from deploy.gateway.chat_request import ChatRequest
from deploy.gateway.completion_request import DEFAULT_MAX_TOKENS, CompletionRequest
from deploy.gateway.prompt_room import require_prompt_fits, room_for_tokens
from deploy.gateway.served_model import ServedModel
from kv import most_pages_of_each, shared_pages


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRoom:
    """How many tokens each of `num_choices` answers may have.

    `asked` is the client's own bound, under the name `field`; `prompt_field` is where the prompt stood.
    """

    asked: int | None
    field: str
    prompt_field: str
    num_choices: int
    default: int | None = None


def chat_room(request: ChatRequest) -> AnswerRoom:
    is_newer = request.max_completion_tokens is not None
    return AnswerRoom(
        asked=request.max_completion_tokens if is_newer else request.max_tokens,
        field="max_completion_tokens" if is_newer else "max_tokens",
        prompt_field="messages",
        num_choices=request.num_choices,
    )


def completion_room(request: CompletionRequest) -> AnswerRoom:
    return AnswerRoom(
        asked=request.max_tokens,
        field="max_tokens",
        prompt_field="prompt",
        num_choices=request.num_choices,
        default=DEFAULT_MAX_TOKENS,
    )


def max_answer_tokens(model: ServedModel, num_prompt: int, room: AnswerRoom) -> int:
    """The bound of each answer. Raises `ContextExceeded` with the numbers when prompt or sum cannot fit."""
    require_prompt_fits(model, num_prompt, room.prompt_field)
    limit, holder = room_for_tokens(model)
    left = limit - num_prompt
    each = _room_of_each(model, num_prompt, room.num_choices)
    if each < left and (each < 1 or (room.asked or 0) > each):
        raise _too_many_choices(model, num_prompt, room, each)
    left = min(left, each)
    if room.asked is None:
        return left if room.default is None else min(left, room.default)
    if room.asked > left:
        raise ContextExceeded(
            f"{holder} is {limit} tokens, but {num_prompt + room.asked} are asked for: {num_prompt} of the prompt and "
            f"{room.asked} of '{room.field}'; shorten the prompt or ask for at most {left}",
            param=room.field,
        )
    return room.asked


def _room_of_each(model: ServedModel, num_prompt: int, num_choices: int) -> int:
    """Tokens that the pool leaves to each answer when all of them are as long as they may be."""
    page = model.page_size
    shared = shared_pages(num_prompt, num_choices, page)
    return most_pages_of_each(model.pool_tokens // page, shared, num_choices) * page - num_prompt


def _too_many_choices(model: ServedModel, num_prompt: int, room: AnswerRoom, each: int) -> ContextExceeded:
    told = f"the KV pool of {model.pool_tokens} tokens leaves {max(0, each)} to each of {room.num_choices} answers"
    if each < 1:
        return ContextExceeded(
            f"{told} beside the prompt of {num_prompt}; ask for fewer of them with 'n' or shorten the prompt", param="n"
        )
    return ContextExceeded(
        f"{told} beside the prompt of {num_prompt}, and {room.asked} are asked for; lower '{room.field}' or 'n', or "
        "shorten the prompt",
        param=room.field,
    )
