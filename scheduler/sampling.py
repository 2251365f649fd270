"""How a sequence's next token is drawn, and when the sequence ends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Distribution shaping, in the order ranks apply it: bias, penalties, temperature, top-k, top-p, min-p.

    `temperature` 0 means greedy. `top_k` 0, `top_p` 1 and `min_p` 0 mean off. `seed` is always set
    (the gateway draws one when the client gave none): a token depends on (seed, position) alone.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRules:
    """`max_tokens` generated tokens at most; a token of `stop_token_ids` ends the sequence unless `ignore_eos`."""

    max_tokens: int
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
