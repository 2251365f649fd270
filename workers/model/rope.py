"""Rotary position embedding: its settings, and the cosine and sine tables of every position.

Variants: default, linear, dynamic (NTK), llama3, yarn, computed in float32 in the order transformers computes them.

A row of the tables depends on its position alone. For `dynamic`, whose frequencies change with the sequence's length,
the row of position p takes the frequencies of a sequence of p + 1 tokens: what transformers gives when it decodes
token by token, and independent of how a prompt was chunked.
"""

import math

import numpy as np
import numpy.typing as npt
import torch

from workers.model.rope_config import RopeConfig

Float32 = npt.NDArray[np.float32]


def inverse_frequencies(rope: RopeConfig, head_dim: int, num_tokens: int = 0) -> tuple[torch.Tensor, float]:
    """Frequencies [head_dim / 2] float32 and the factor cosines and sines are scaled by; `num_tokens` is for
    `dynamic`.
    """
    if rope.kind == "dynamic":
        return _plain(_dynamic_theta(rope, head_dim, num_tokens), head_dim), 1.0
    if rope.kind == "yarn":
        return _yarn(rope, head_dim)
    frequencies = _plain(rope.theta, head_dim)
    if rope.kind == "linear":
        frequencies /= rope.factor
    elif rope.kind == "llama3":
        frequencies = _llama3(rope, frequencies)
    return frequencies, 1.0


def rope_tables(rope: RopeConfig, head_dim: int, num_positions: int) -> tuple[Float32, Float32]:
    """Cosines and sines [num_positions, head_dim / 2], already scaled by the attention factor."""
    frequencies, scaling = inverse_frequencies(rope, head_dim)
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = positions[:, None] * frequencies[None, :]
    if rope.kind == "dynamic":
        for position in range(rope.original_positions, num_positions):
            grown, _ = inverse_frequencies(rope, head_dim, position + 1)
            angles[position] = positions[position] * grown
    return (angles.cos() * scaling).numpy(), (angles.sin() * scaling).numpy()


def _plain(theta: float, head_dim: int) -> torch.Tensor:
    return 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))


def _dynamic_theta(rope: RopeConfig, head_dim: int, num_tokens: int) -> float:
    num_tokens = max(num_tokens, rope.original_positions)
    stretch = rope.factor * num_tokens / rope.original_positions - (rope.factor - 1)
    return float(rope.theta * stretch ** (head_dim / (head_dim - 2)))


def _llama3(rope: RopeConfig, frequencies: torch.Tensor) -> torch.Tensor:
    """Long waves are stretched by the factor, short ones kept, those between blended (Llama 3.1)."""
    longest = rope.original_positions / rope.low_freq_factor
    shortest = rope.original_positions / rope.high_freq_factor
    waves = 2 * math.pi / frequencies
    scaled = torch.where(waves > longest, frequencies / rope.factor, frequencies)
    blend = (rope.original_positions / waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - blend) * scaled / rope.factor + blend * scaled
    between = (waves >= shortest) & (waves <= longest)
    return torch.where(between, blended, scaled)


def _yarn(rope: RopeConfig, head_dim: int) -> tuple[torch.Tensor, float]:
    """YaRN (Peng et al. 2023): interpolate slow rotations, keep fast ones, ramp between; scale the attention's
    logits.
    """

    def dimension_of(rotations: float) -> float:
        turns = rope.original_positions / (rotations * 2 * math.pi)
        return (head_dim * math.log(turns)) / (2 * math.log(rope.theta))

    low, high = dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a ramp of no width would divide by zero
    waves = rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    ramp = torch.clamp((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low), 0, 1)
    kept = 1 - ramp
    frequencies = 1.0 / (rope.factor * waves) * (1 - kept) + 1.0 / waves * kept
    return frequencies, _yarn_scaling(rope)


def _yarn_scaling(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return _mscale(rope.factor, rope.mscale) / _mscale(rope.factor, rope.mscale_all_dim)
    return _mscale(rope.factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
