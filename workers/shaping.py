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

# Bins of log-weight, 1/64 wide; the last one holds everything below exp(-32).
_BINS_PER_UNIT = 64
_NUM_BINS = 2048


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
    """The token drawn by `uniform` in [0, 1) from adjusted logits [vocabulary]; temperature must be positive.

    Candidates stand in order of token id, and the draw inverts their cumulative weights.
    """
    tokens: Int64 | None = None  # all of them
    values = logits
    if 0 < params.top_k < len(logits):
        tokens = likeliest(logits, params.top_k)
        values = logits[tokens]
    scaled = (values - values.max()) / params.temperature
    weights = np.exp(scaled)
    if params.top_p < 1:
        kept = nucleus(scaled, weights, params.top_p)
        tokens, weights = kept if tokens is None else tokens[kept], weights[kept]
    if params.min_p > 0:
        # The likeliest token's own weight is 1.
        kept = np.flatnonzero(weights >= min(params.min_p, 1.0))
        tokens, weights = kept if tokens is None else tokens[kept], weights[kept]
    cumulative = np.cumsum(weights)
    place = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    place = min(place, len(weights) - 1)
    return place if tokens is None else int(tokens[place])


def likeliest(logits: Float64, count: int) -> Int64:
    """The `count` tokens of largest logit, ascending by id; among equal logits the lowest ids are taken."""
    bound = np.partition(logits, len(logits) - count)[len(logits) - count]
    taken = logits > bound
    taken[np.flatnonzero(logits == bound)[: count - np.count_nonzero(taken)]] = True
    return np.flatnonzero(taken)


def nucleus(scaled: Float64, weights: Float64, top_p: float) -> Int64:
    """Places, ascending, of the fewest largest weights whose sum reaches `top_p` of the whole; the one that crosses
    stays.

    `scaled` are the weights' logarithms, the largest 0. Only the bin in which the sum crosses is sorted.
    """
    bins = np.minimum(scaled * -_BINS_PER_UNIT, _NUM_BINS - 1).astype(np.int64)
    upto = np.cumsum(np.bincount(bins, weights=weights, minlength=_NUM_BINS))
    wanted = top_p * upto[-1]
    crossing = int(np.searchsorted(upto, wanted, side="left"))
    before = upto[crossing - 1] if crossing else 0.0
    edge = np.flatnonzero(bins == crossing)
    edge = edge[np.argsort(-scaled[edge], kind="stable")]
    reached = int(np.searchsorted(before + np.cumsum(weights[edge]), wanted, side="left"))
    taken = bins < crossing
    taken[edge[: reached + 1]] = True
    return np.flatnonzero(taken)
