"""Writes tiny random models as ordinary Hugging Face folders: config, bf16 safetensors, tokenizer, chat template.

Weights come from transformers with a fixed seed, so that a folder's name says what is in it. The tokenizer is byte-
level: every id below the vocabulary's size decodes to something, and every text encodes.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN_ID = 2

_KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """`kind` is llama, qwen2 or qwen3; `settings` go to transformers' config as they are (rope_parameters, biases,
    ...).
    """

    kind: str = "llama"
    num_heads: int = 9
    num_kv_heads: int = 3
    head_dim: int = 16
    num_layers: int = 2
    intermediate_size: int = 192
    vocab_size: int = 288
    max_positions: int = 1024
    tied: bool = False
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self) -> Any:
        made = {
            "vocab_size": self.vocab_size,
            "hidden_size": self.num_heads * self.head_dim,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "max_position_embeddings": self.max_positions,
            "tie_word_embeddings": self.tied,
            "bos_token_id": 1,
            "eos_token_id": EOS_TOKEN_ID,
            "initializer_range": 0.08,  # wide enough that logits differ clearly and greedy text does not loop at once
        }
        if self.kind != "qwen2":
            made["head_dim"] = self.head_dim
        return _KINDS[self.kind][0](**(made | self.settings))


def write_tiny_model(folder: Path, model: TinyModel = TinyModel(), *, max_shard_size: str = "1GB") -> Path:
    """Write the folder and return it. A small `max_shard_size` ("20KB") gives several shards with an index."""
    torch_model = random_model(model)
    torch_model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=max_shard_size)
    _write_tokenizer(folder, model.vocab_size)
    return folder


def random_model(model: TinyModel) -> PreTrainedModel:
    """The model in fp32, its biases and norms random too: zeros and ones would hide mistakes."""
    torch.manual_seed(model.seed)
    made: PreTrainedModel = _KINDS[model.kind][1](model.config())
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.1)
            elif "norm" in name:
                parameter.normal_(1, 0.1)
    return made.eval()


def load_oracle(folder: Path) -> PreTrainedModel:
    """Transformers' own model in fp32 on the folder's bf16 weights."""
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    loaded: PreTrainedModel = _KINDS[kind][1].from_pretrained(folder, dtype=torch.float32)
    return loaded.eval()


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS, *alphabet])}
    merges: list[tuple[str, str]] = []
    for first in "etaoinshrdlu":
        for second in "haeiounrst":
            if len(vocab) < vocab_size and first + second not in vocab:
                vocab[first + second] = len(vocab)
                merges.append((first, second))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
