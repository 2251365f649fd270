"""Whether a prompt can fit the model and the pool at all, whatever becomes of its answer."""

from deploy.errors import ContextExceeded
from deploy.gateway.served_model import ServedModel


def room_for_tokens(model: ServedModel) -> tuple[int, str]:
    """The most tokens that prompt and answer can have together, and the words for what sets that bound."""
    if model.pool_tokens < model.max_model_len:
        return model.pool_tokens, "the KV pool"
    return model.max_model_len, "the model's length"


def require_prompt_fits(model: ServedModel, num_prompt: int, param: str, *, is_estimate: bool = False) -> None:
    """Raises `ContextExceeded` about the field `param` if no room is left for an answer. An estimate is `num_prompt`
    tokens at least."""
    limit, holder = room_for_tokens(model)
    if num_prompt >= limit:
        told = f"at least {num_prompt}" if is_estimate else f"{num_prompt}"
        raise ContextExceeded(
            f"the prompt has {told} tokens and {holder} is {limit} tokens, of which the answer needs at least 1; "
            "shorten the prompt",
            param=param,
        )
