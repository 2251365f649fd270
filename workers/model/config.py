"""What a model folder says about its model: `config.json` and `generation_config.json`, checked and made plain.

Knows the Llama, Qwen2 and Qwen3 architectures as transformers writes them, with `rope_theta`/`rope_scaling` or with the
newer `rope_parameters`. Anything a shard would compute wrongly is refused here by name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.errors import BrokenModel, UnsupportedModel
from workers.model.rope_config import ROPE_KINDS, RopeConfig

Json = Mapping[str, Any]

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

# Kinds whose `max_position_embeddings` is the trained length, so that the factor lengthens it.
_LENGTHENING = ("linear", "dynamic", "yarn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One decoder-only model. `max_positions` is the longest sequence its position embedding serves, in tokens."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_eps: float
    rope: RopeConfig
    max_positions: int
    tied_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    eos_token_ids: tuple[int, ...]

    @property
    def queries_per_kv_head(self) -> int:
        return self.num_heads // self.num_kv_heads


def read_model_config(model_dir: str | Path) -> ModelConfig:
    """Read and check a model folder's config. Raises `UnsupportedModel` or `BrokenModel`, each with one line."""
    folder = Path(model_dir)
    path = folder / "config.json"
    raw = _read_json(path)
    architecture = _architecture(raw, path)
    _refuse_what_is_not_computed(raw, path)
    hidden = _count(raw, "hidden_size", path)
    num_heads = _count(raw, "num_attention_heads", path)
    num_kv_heads = _count(raw, "num_key_value_heads", path, default=num_heads)
    head_dim = _count(raw, "head_dim", path, default=hidden // num_heads)
    if num_heads % num_kv_heads:
        raise BrokenModel(f"{path}: num_attention_heads {num_heads} is not a multiple of {num_kv_heads} KV heads")
    if head_dim % 2:
        raise BrokenModel(f"{path}: head_dim {head_dim} is odd; rotary position embedding needs an even one")
    rope = _rope(raw, path, default_positions=_count(raw, "max_position_embeddings", path))
    bias = bool(raw.get("attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        vocab_size=_count(raw, "vocab_size", path),
        hidden_size=hidden,
        intermediate_size=_count(raw, "intermediate_size", path),
        num_layers=_count(raw, "num_hidden_layers", path),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=rope,
        max_positions=_max_positions(raw, rope),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        # Qwen2 always has biases on q, k, v and never on o; the others follow `attention_bias` for all four.
        qkv_bias=architecture == "Qwen2ForCausalLM" or bias,
        o_bias=architecture != "Qwen2ForCausalLM" and bias,
        mlp_bias=architecture == "LlamaForCausalLM" and bool(raw.get("mlp_bias", False)),
        qk_norm=architecture == "Qwen3ForCausalLM",
        eos_token_ids=_eos_token_ids(folder, raw),
    )


def _read_json(path: Path) -> Json:
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BrokenModel(f"{path}: no such file; a model folder needs a config.json") from None
    except (OSError, ValueError) as error:
        raise BrokenModel(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(raw, dict):
        raise BrokenModel(f"{path}: holds {type(raw).__name__}, not an object")
    return raw


def _architecture(raw: Json, path: Path) -> str:
    named = raw.get("architectures") or []
    for name in named if isinstance(named, list) else [named]:
        if name in ARCHITECTURES:
            return str(name)
    found = named or raw.get("model_type") or "none"
    raise UnsupportedModel(f"{path}: architecture {found} is not supported; supported are {', '.join(ARCHITECTURES)}")


def _refuse_what_is_not_computed(raw: Json, path: Path) -> None:
    if raw.get("quantization_config"):
        raise UnsupportedModel(
            f"{path}: quantization_config is set; only plain bf16, fp16 and fp32 weights are supported"
        )
    if raw.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"{path}: hidden_act {raw['hidden_act']!r} is not supported; supported is 'silu'")
    layer_types = set(raw.get("layer_types") or ["full_attention"])
    slides = bool(raw.get("use_sliding_window", False)) and raw.get("sliding_window") is not None
    if layer_types != {"full_attention"} or (slides and not raw.get("layer_types") and _window_reaches_a_layer(raw)):
        raise UnsupportedModel(
            f"{path}: sliding-window or other attention layers are in use; supported is full attention"
        )


def _window_reaches_a_layer(raw: Json) -> bool:
    return int(raw.get("max_window_layers", 0)) < int(raw.get("num_hidden_layers", 0))


def _count(raw: Json, name: str, path: Path, default: int | None = None) -> int:
    value = raw.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BrokenModel(f"{path}: {name} is {value!r}; a positive integer is needed")
    return value


def _rope(raw: Json, path: Path, default_positions: int) -> RopeConfig:
    settings: dict[str, Any] = dict(raw.get("rope_scaling") or {}) | dict(raw.get("rope_parameters") or {})
    if any(isinstance(value, dict) for value in settings.values()):
        raise UnsupportedModel(f"{path}: rope_parameters differ by layer type; one setting for all layers is supported")
    kind = str(settings.get("rope_type") or settings.get("type") or "default")
    if kind not in ROPE_KINDS:
        raise UnsupportedModel(f"{path}: rope type {kind!r} is not supported; supported are {', '.join(ROPE_KINDS)}")
    if float(settings.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0) != 1.0:
        raise UnsupportedModel(f"{path}: partial_rotary_factor other than 1 is not supported")
    original = settings.get("original_max_position_embeddings")
    if kind in ("llama3", "yarn"):
        original = raw.get("original_max_position_embeddings", original)
    else:
        original = default_positions
    positions = int(original or default_positions)
    factor = settings.get("factor")
    if factor is None and kind == "yarn":
        factor = default_positions / positions
    if factor is None and kind != "default":
        raise BrokenModel(f"{path}: rope type {kind!r} without a factor")
    try:
        return RopeConfig(
            kind=kind,
            theta=float(settings.get("rope_theta") or raw.get("rope_theta") or 10000.0),
            original_positions=positions,
            factor=float(factor or 1.0),
            low_freq_factor=float(settings.get("low_freq_factor", 1.0)),
            high_freq_factor=float(settings.get("high_freq_factor", 4.0)),
            beta_fast=float(settings.get("beta_fast") or 32.0),
            beta_slow=float(settings.get("beta_slow") or 1.0),
            attention_factor=_optional(settings.get("attention_factor")),
            mscale=_optional(settings.get("mscale")),
            mscale_all_dim=_optional(settings.get("mscale_all_dim")),
            truncate=bool(settings.get("truncate", True)),
        )
    except (TypeError, ValueError) as error:
        raise BrokenModel(f"{path}: rope settings cannot be read: {error}") from None


def _optional(value: object) -> float | None:
    return None if value is None else float(str(value))


def _max_positions(raw: Json, rope: RopeConfig) -> int:
    declared = int(raw["max_position_embeddings"])
    if rope.kind in _LENGTHENING:
        return max(declared, int(rope.original_positions * rope.factor))
    return declared


def _eos_token_ids(folder: Path, raw: Json) -> tuple[int, ...]:
    generation = folder / "generation_config.json"
    eos = _read_json(generation).get("eos_token_id") if generation.exists() else None
    if eos is None:
        eos = raw.get("eos_token_id")
    if eos is None:
        return ()
    ids = eos if isinstance(eos, list) else [eos]
    if not all(isinstance(token, int) and token >= 0 for token in ids):
        raise BrokenModel(f"{folder}: eos_token_id {eos!r} is not a token id or a list of them")
    return tuple(ids)
