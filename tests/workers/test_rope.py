"""Frequencies, scaling and tables against transformers' own, for every variant."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from workers.model.config import read_model_config
from workers.model.rope import inverse_frequencies, rope_tables

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    "yarn with betas": {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 24.0,
        "beta_slow": 2.0,
        "truncate": False,
    },
    "yarn with attention factor": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.7},
    "yarn with mscale": {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.8},
}


def llama(name: str) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=576,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        rope_parameters=SETTINGS[name] | {"rope_theta": 50000.0},
        architectures=["LlamaForCausalLM"],
    )


@pytest.mark.parametrize("name", list(SETTINGS))
def test_frequencies_and_attention_scaling_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    theirs = llama(name)
    theirs.save_pretrained(tmp_path)
    ours = read_model_config(tmp_path)
    if name == "default":
        expected, scaling = LlamaRotaryEmbedding.compute_default_rope_parameters(theirs)
    else:
        expected, scaling = ROPE_INIT_FUNCTIONS[SETTINGS[name]["rope_type"]](theirs)
    frequencies, factor = inverse_frequencies(ours.rope, ours.head_dim)
    torch.testing.assert_close(frequencies, expected, rtol=1e-7, atol=0)
    assert factor == pytest.approx(scaling, rel=1e-12)


@pytest.mark.parametrize("name", list(SETTINGS))
def test_tables_are_the_cosines_and_sines_of_transformers(tmp_path: Path, name: str) -> None:
    theirs = llama(name)
    theirs.save_pretrained(tmp_path)
    ours = read_model_config(tmp_path)
    cos, sin = LlamaRotaryEmbedding(theirs)(torch.zeros(1), torch.arange(2048)[None])
    table_cos, table_sin = rope_tables(ours.rope, ours.head_dim, 2048)
    np.testing.assert_allclose(table_cos, cos[0, :, :32].numpy(), atol=2e-6)
    np.testing.assert_allclose(table_sin, sin[0, :, :32].numpy(), atol=2e-6)


@pytest.mark.parametrize("position", [2047, 2048, 3000])
def test_a_dynamic_row_takes_the_frequencies_of_a_sequence_that_ends_there(tmp_path: Path, position: int) -> None:
    theirs = llama("dynamic")
    theirs.save_pretrained(tmp_path)
    ours = read_model_config(tmp_path)
    cos, _ = LlamaRotaryEmbedding(theirs)(torch.zeros(1), torch.tensor([[position]]))
    table_cos, _ = rope_tables(ours.rope, ours.head_dim, 3001)
    np.testing.assert_allclose(table_cos[position], cos[0, 0, :32].numpy(), atol=2e-6)


def test_a_row_does_not_depend_on_the_length_of_the_table(tmp_path: Path) -> None:
    llama("dynamic").save_pretrained(tmp_path)
    config = read_model_config(tmp_path)
    short, _ = rope_tables(config.rope, config.head_dim, 2100)
    long, _ = rope_tables(config.rope, config.head_dim, 4000)
    np.testing.assert_array_equal(long[:2100], short)
