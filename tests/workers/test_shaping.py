"""One row's arithmetic against a naive reference that sorts everything and masks in the documented order."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.sampling import SamplingParams
from workers.model.partition import Span
from workers.shaping import adjust, draw, likeliest, nucleus
from workers.token_counts import TokenCounts

Float64 = npt.NDArray[np.float64]


def naive_distribution(logits: Float64, params: SamplingParams) -> Float64:
    """Probabilities after temperature, top-k, top-p, min-p; one full sort, one mask after the other."""
    scaled = (logits - logits.max()) / params.temperature
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    kept = order[: params.top_k] if params.top_k else order
    weights = np.exp(scaled[kept])
    total = weights.sum()
    if params.top_p < 1:
        mass, last = 0.0, 0
        for last in range(len(kept)):
            mass += weights[last]
            if mass >= params.top_p * total:
                break
        kept, weights = kept[: last + 1], weights[: last + 1]
    survivors = [token for token, weight in zip(kept, weights, strict=True) if weight >= params.min_p]
    probabilities = np.zeros(len(logits))
    probabilities[survivors] = np.exp(scaled[survivors])
    result: Float64 = probabilities / probabilities.sum()
    return result


def drawn_distribution(logits: Float64, params: SamplingParams, num_draws: int = 4000) -> Float64:
    """Frequencies over evenly spaced uniforms: the inverse of the cumulative weights without chance."""
    counts = Counter(draw(logits, params, (number + 0.5) / num_draws) for number in range(num_draws))
    return np.array([counts[token] / num_draws for token in range(len(logits))])


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.3),
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.6),
        SamplingParams(min_p=0.2),
        SamplingParams(temperature=2.0, top_k=30, top_p=0.9, min_p=0.05),
        SamplingParams(top_k=1000),
        SamplingParams(top_p=0.0),
        SamplingParams(top_p=0.999999, min_p=1e-6),
    ],
)
def test_draws_follow_the_naive_distribution(params: SamplingParams) -> None:
    logits = np.random.default_rng(3).normal(0, 3, 400)
    np.testing.assert_allclose(drawn_distribution(logits, params), naive_distribution(logits, params), atol=5e-4)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.05, 3),
    top_k=st.integers(0, 60),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_no_draw_leaves_the_support(  # noqa: PLR0917 - hypothesis passes them by name
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> None:
    logits = np.round(np.random.default_rng(seed).normal(0, 2, 50), 1)  # rounded: ties are common
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    probabilities = naive_distribution(logits, params)
    token = draw(logits, params, uniform)
    # A token at the very edge of a mass may fall either way by rounding.
    edge = naive_distribution(logits, SamplingParams(temperature=temperature, top_k=top_k))
    assert probabilities[token] > 0 or edge[token] <= probabilities[probabilities > 0].min() * (1 + 1e-6)


@pytest.mark.parametrize("num_tokens", [255, 256, 257, 3000, 20000])
def test_a_wide_nucleus_is_found_whatever_the_vocabulary(num_tokens: int) -> None:
    """Nearly flat logits: the nucleus holds far more tokens than are sorted at first."""
    logits = np.random.default_rng(1).normal(0, 0.01, num_tokens)
    params = SamplingParams(top_p=0.95)
    support = np.flatnonzero(naive_distribution(logits, params))
    weights = np.exp(logits - logits.max())
    np.testing.assert_array_equal(nucleus(logits - logits.max(), weights, 0.95), support)
    assert draw(logits, params, 0.0) == support[0]
    assert draw(logits, params, 1 - 2**-53) == support[-1]


def test_top_k_of_one_is_the_first_maximum() -> None:
    logits = np.array([0.0, 5.0, 1.0, 5.0])
    assert {draw(logits, SamplingParams(top_k=1), uniform) for uniform in (0.0, 0.5, 0.999)} == {1}


def test_equal_logits_at_the_bound_of_top_k_rank_by_lowest_id() -> None:
    logits = np.array([1.0, 2.0, 1.0, 1.0, 3.0])
    assert likeliest(logits, 3).tolist() == [0, 1, 4]
    assert likeliest(logits, 4).tolist() == [0, 1, 2, 4]
    assert likeliest(logits, 5).tolist() == [0, 1, 2, 3, 4]


def test_the_largest_uniform_still_gives_a_token_of_some_weight() -> None:
    logits = np.array([0.0, 0.0, -5000.0])
    assert draw(logits, SamplingParams(), 1 - 2**-53) == 1


def test_a_tiny_temperature_does_not_overflow() -> None:
    logits = np.array([1e4, 1e4 - 1, -1e4])
    assert draw(logits, SamplingParams(temperature=1e-6), 0.999999) == 0


def naive_penalties(logits: list[float], prompt: list[int], output: list[int], params: SamplingParams) -> list[float]:
    adjusted = list(logits)
    for token, bias in params.logit_bias:
        adjusted[token] += bias
    for token in set(prompt) | set(output):
        value = adjusted[token]
        adjusted[token] = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
    for token, count in Counter(output).items():
        adjusted[token] -= params.frequency_penalty * count + params.presence_penalty
    return adjusted


@pytest.mark.parametrize("cut", [0, 7, 40])
def test_penalties_and_bias_equal_the_naive_reference_on_any_split_of_the_vocabulary(cut: int) -> None:
    logits = np.random.default_rng(5).normal(0, 3, 40).astype(np.float32)
    prompt, output = [3, 3, 9, 39, 0], [9, 9, 17, 6, 7, 9]
    params = SamplingParams(
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=-0.2,
        logit_bias=((3, 2.5), (7, -100.0), (21, 1.0)),
    )
    expected = naive_penalties(logits.tolist(), prompt, output, params)
    counts = TokenCounts(prompt, output[:2])
    for token in output[2:]:
        counts.append(token)
    for start, end in ((0, cut), (cut, 40)):
        adjust(logits[start:end], Span(start=start, end=end), params, counts)
    np.testing.assert_allclose(logits, expected, rtol=1e-6)


def test_counts_grow_past_their_first_room() -> None:
    counts = TokenCounts(range(50), [])
    for token in [*range(40, 300), 299]:
        counts.append(token)
    assert counts.ids.tolist() == list(range(300))
    assert counts.in_output.tolist() == [0] * 40 + [1] * 259 + [2]
