"""The pure arithmetic of one row's sampling: logits in, token out. Float64 throughout, ties by lowest token id.

Order: bias, penalties (both act on single tokens, so each rank applies them to its own vocabulary), then temperature,
top-k, top-p, min-p and the draw over all of it. Penalties are those of vLLM: repetition over prompt and output,
presence and frequency over the output alone.
"""

import numpy as np
import numpy.typing as npt

from scheduler.sampling import SamplingParams
from workers.model.partition import Span
from workers.token_counts import TokenCounts

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

# How many of the likeliest tokens are sorted first when only a mass is asked for; grown eightfold until it holds the
# mass.
_FIRST_LOOK = 256


def adjust(logits: Float32, vocab: Span, params: SamplingParams, counts: TokenCounts | None) -> None:
    """Bias and penalties, in place, on one row [vocab.size] of the logits of the tokens in `vocab`."""
    for token, bias in params.logit_bias:
        if vocab.start <= token < vocab.end:
            logits[token - vocab.start] += bias
    if counts is None:
        return
    held = (counts.ids >= vocab.start) & (counts.ids < vocab.end)
    columns = counts.ids[held] - vocab.start
    in_output = counts.in_output[held]
    values = logits[columns].astype(np.float64)
    factor = params.repetition_penalty
    values = np.where(values > 0, values / factor, values * factor)
    values -= params.frequency_penalty * in_output
    values -= params.presence_penalty * (in_output > 0)
    logits[columns] = values


def draw(logits: Float64, params: SamplingParams, uniform: float) -> int:
    """The token drawn by `uniform` in [0, 1) from adjusted logits [vocabulary]; temperature must be positive."""
    candidates, weights = _candidates(logits, params)
    cumulative = np.cumsum(weights)
    place = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    place = min(place, len(weights) - 1)
    return place if candidates is None else int(candidates[place])


def _candidates(logits: Float64, params: SamplingParams) -> tuple[Int64 | None, Float64]:
    """Tokens that may be drawn, likeliest first, and their weights; None stands for all tokens in order of id."""
    peak = logits.max()
    if params.top_k > 0:
        tokens = likeliest(logits, params.top_k)
        weights = np.exp((logits[tokens] - peak) / params.temperature)
        total = float(weights.sum())
    else:
        all_weights = np.exp((logits - peak) / params.temperature)
        if params.top_p >= 1 and params.min_p <= 0:
            return None, all_weights
        total = float(all_weights.sum())
        tokens = _holding_mass(logits, all_weights, params, total)
        weights = all_weights[tokens]
    if params.top_p < 1:
        # The token that crosses the mass is the last to stay.
        reached = int(np.searchsorted(np.cumsum(weights), params.top_p * total, side="left"))
        tokens, weights = tokens[: reached + 1], weights[: reached + 1]
    if params.min_p > 0:
        # Weights are relative to the likeliest token, whose own is 1.
        kept = max(int(np.count_nonzero(weights >= params.min_p)), 1)
        tokens, weights = tokens[:kept], weights[:kept]
    return tokens, weights


def _holding_mass(logits: Float64, weights: Float64, params: SamplingParams, total: float) -> Int64:
    """The likeliest tokens, sorted, at least as many as top-p and min-p can keep."""
    look = _FIRST_LOOK
    while look < len(logits):
        tokens = likeliest(logits, look)
        held = weights[tokens]
        enough_mass = params.top_p < 1 and held.sum() >= params.top_p * total
        if enough_mass or held[-1] < params.min_p:
            return tokens
        look *= 8
    return likeliest(logits, len(logits))


def likeliest(logits: Float64, count: int) -> Int64:
    """The `count` tokens of largest logit in descending order; equal logits rank by lowest id."""
    if count < len(logits):
        bound = np.partition(logits, len(logits) - count)[len(logits) - count]
        above = np.flatnonzero(logits > bound)
        equal = np.flatnonzero(logits == bound)[: count - len(above)]
        tokens = np.concatenate([above, equal])
    else:
        tokens = np.arange(len(logits))
    order = np.lexsort((tokens, -logits[tokens]))
    return tokens[order]
