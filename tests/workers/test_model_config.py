"""What is read from config.json, in the old and the new spelling, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from workers.errors import BrokenModel, UnsupportedModel
from workers.model.config import read_model_config

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}


def write(folder: Path, **changes: Any) -> Path:
    config = {name: value for name, value in (LLAMA | changes).items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_plain_llama_is_read(tmp_path: Path) -> None:
    config = read_model_config(write(tmp_path))
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.num_layers) == (9, 3, 64, 30)
    assert (config.rope.kind, config.rope.theta, config.max_positions) == ("default", 100000.0, 8192)
    assert (config.qkv_bias, config.o_bias, config.mlp_bias, config.qk_norm) == (False, False, False, False)
    assert config.tied_embeddings
    assert config.eos_token_ids == (2,)


def test_absent_kv_heads_mean_as_many_as_query_heads(tmp_path: Path) -> None:
    assert read_model_config(write(tmp_path, num_key_value_heads=...)).num_kv_heads == 9


def test_qwen2_has_biases_on_queries_keys_and_values_only(tmp_path: Path) -> None:
    config = read_model_config(write(tmp_path, architectures=["Qwen2ForCausalLM"]))
    assert (config.qkv_bias, config.o_bias, config.qk_norm) == (True, False, False)


def test_qwen3_has_head_norms_and_a_head_size_of_its_own(tmp_path: Path) -> None:
    config = read_model_config(write(tmp_path, architectures=["Qwen3ForCausalLM"], head_dim=128))
    assert (config.qkv_bias, config.qk_norm, config.head_dim) == (False, True, 128)


def test_llama_biases_follow_the_config(tmp_path: Path) -> None:
    config = read_model_config(write(tmp_path, attention_bias=True, mlp_bias=True))
    assert (config.qkv_bias, config.o_bias, config.mlp_bias) == (True, True, True)


def test_generation_config_wins_over_config_for_end_tokens(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    assert read_model_config(write(tmp_path)).eos_token_ids == (5, 7)


def test_old_and_new_rope_spellings_mean_the_same(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    scaling = {"rope_type": "linear", "factor": 4.0}
    write(old, rope_scaling={"type": "linear", "factor": 4.0})
    write(new, rope_theta=..., rope_parameters=scaling | {"rope_theta": 100000.0})
    assert read_model_config(old) == read_model_config(new)
    assert read_model_config(old).max_positions == 4 * 8192


def test_yarn_lengthens_and_llama3_does_not(tmp_path: Path) -> None:
    scaling = {"factor": 4.0, "original_max_position_embeddings": 2048}
    yarn = read_model_config(write(tmp_path, rope_scaling={"rope_type": "yarn"} | scaling))
    assert (yarn.max_positions, yarn.rope.original_positions) == (8192, 2048)
    llama3 = read_model_config(write(tmp_path, rope_scaling={"rope_type": "llama3"} | scaling))
    assert (llama3.max_positions, llama3.rope.original_positions) == (8192, 2048)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "GPT2LMHeadModel.*Llama.*, Qwen2.*, Qwen3ForCausalLM",
        ),
        ({"architectures": ..., "model_type": "mamba"}, "mamba"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 10}, "sliding-window"),
        ({"layer_types": ["sliding_attention"] * 30}, "sliding-window"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2}}, "'longrope'.*yarn"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "differ by layer type"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        read_model_config(write(tmp_path, **changes))


def test_a_window_that_reaches_no_layer_is_no_window(tmp_path: Path) -> None:
    write(tmp_path, use_sliding_window=True, sliding_window=4096, max_window_layers=30)
    assert read_model_config(tmp_path).num_layers == 30


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": ...}, "hidden_size is None"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"num_key_value_heads": 2}, "9 is not a multiple of 2"),
        ({"head_dim": 63}, "head_dim 63 is odd"),
        ({"eos_token_id": "</s>"}, "eos_token_id '</s>'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "'linear' without a factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": [2]}}, "rope settings cannot be read"),
    ],
)
def test_a_senseless_config_is_one_line(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BrokenModel, match=named) as caught:
        read_model_config(write(tmp_path, **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", None])
def test_an_unreadable_config_names_its_file(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(BrokenModel, match=r"config\.json"):
        read_model_config(tmp_path)
