"""Writes a tiny random Llama as an ordinary model folder: for benches that need many requests and no sense.

Weights are float32, drawn with a fixed seed; they are wide enough that logits differ clearly and a greedy text does
not loop at once. The heads do not divide evenly by two ranks, as in many real models.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

WEIGHT_SCALE = 0.08
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModel:
    """`vocab_size` is that of the tokenizer beside it, or anything where only token ids are used."""

    vocab_size: int = 512
    num_layers: int = 2
    num_heads: int = 9
    num_kv_heads: int = 3
    head_dim: int = 16
    intermediate_size: int = 192
    max_positions: int = 1024
    seed: int = 0

    @property
    def hidden_size(self) -> int:
        return self.num_heads * self.head_dim

    def config(self) -> dict[str, object]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "max_position_embeddings": self.max_positions,
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor by name, in the order in which they are drawn."""
        hidden, queries = self.hidden_size, self.num_heads * self.head_dim
        keys = self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for number in range(self.num_layers):
            layer = f"model.layers.{number}."
            shapes |= {
                layer + "input_layernorm.weight": (hidden,),
                layer + "self_attn.q_proj.weight": (queries, hidden),
                layer + "self_attn.k_proj.weight": (keys, hidden),
                layer + "self_attn.v_proj.weight": (keys, hidden),
                layer + "self_attn.o_proj.weight": (hidden, queries),
                layer + "post_attention_layernorm.weight": (hidden,),
                layer + "mlp.gate_proj.weight": (self.intermediate_size, hidden),
                layer + "mlp.up_proj.weight": (self.intermediate_size, hidden),
                layer + "mlp.down_proj.weight": (hidden, self.intermediate_size),
            }
        return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (self.vocab_size, hidden)}


def write_tiny_model(folder: Path, model: TinyModel = TinyModel(), *, tokenizer_dir: Path | None = None) -> Path:
    """Write the folder and return it. The tokenizer is that of `tokenizer_dir`; without one there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(model.seed)
    tensors = {}
    for name, shape in model.shapes().items():
        mean = 1.0 if len(shape) == 1 else 0.0  # norms
        tensors[name] = (mean + WEIGHT_SCALE * draw.standard_normal(shape)).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(model.config(), indent=2))
    if tokenizer_dir is not None:
        for name in TOKENIZER_FILES:
            if (tokenizer_dir / name).exists():
                shutil.copyfile(tokenizer_dir / name, folder / name)
    return folder


def vocab_size_of(model_dir: Path) -> int:
    """Rows of the folder's embedding, as its config says."""
    return int(json.loads((model_dir / "config.json").read_text())["vocab_size"])
