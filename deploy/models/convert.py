"""A Llama GGUF into a Hugging Face folder: weights in bfloat16, configuration, tokenizer, chat template.

The same GGUF gives the same bytes. No tensor library is needed: GGUF's blocks are dequantized in numpy and rounded to
bfloat16 (nearest, ties to even) as integers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, ReaderTensor, dequantize
from safetensors import TensorSpec, serialize_file

from deploy.models.errors import ConversionFailed
from deploy.models.vocabulary import Vocabulary, as_json, special_tokens_map, tokenizer_config, tokenizer_json

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def convert_gguf(gguf: Path, folder: Path, pre_tokenizer: str, progress: Callable[[float], None]) -> None:
    """Write the model of `gguf` into `folder`, which exists and is empty. Raises `ConversionFailed`."""
    try:
        reader = GGUFReader(gguf)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ConversionFailed(f"{gguf.name} is not a readable GGUF: {error}") from error
    _expect(fields, "general.architecture", "llama")
    _expect(fields, "tokenizer.ggml.model", "gpt2")
    _expect(fields, "tokenizer.ggml.pre", pre_tokenizer)
    names = {tensor.name for tensor in reader.tensors}
    config = _model_config(fields, tied="output.weight" not in names)
    vocabulary = _vocabulary(fields)
    texts = {
        "config.json": as_json(config),
        "generation_config.json": as_json(_generation_config(vocabulary)),
        "tokenizer.json": tokenizer_json(vocabulary),
        "tokenizer_config.json": as_json(tokenizer_config(vocabulary, config["max_position_embeddings"])),
        "special_tokens_map.json": as_json(special_tokens_map(vocabulary)),
        "chat_template.jinja": vocabulary.chat_template,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    _write_weights(reader.tensors, config, folder / "model.safetensors", progress)


def _expect(fields: dict[str, Any], name: str, value: str) -> None:
    if fields.get(name) != value:
        raise ConversionFailed(f"the GGUF says {name} = {fields.get(name)!r}; only {value!r} can be converted")


def _model_config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    hidden, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    theta = float(fields["llama.rope.freq_base"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "dtype": "bfloat16",
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        # The GGUF holds a float32; its shortest decimal is the number the authors wrote.
        "rms_norm_eps": float(str(np.float32(fields["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "rope_theta": theta,
        "tie_word_embeddings": tied,
        "use_cache": True,
        "vocab_size": fields["llama.vocab_size"],
    }


def _vocabulary(fields: dict[str, Any]) -> Vocabulary:
    return Vocabulary(
        tokens=tuple(fields["tokenizer.ggml.tokens"]),
        token_types=tuple(fields["tokenizer.ggml.token_type"]),
        merges=tuple(fields["tokenizer.ggml.merges"]),
        bos_id=fields["tokenizer.ggml.bos_token_id"],
        eos_id=fields["tokenizer.ggml.eos_token_id"],
        unk_id=fields["tokenizer.ggml.unknown_token_id"],
        pad_id=fields["tokenizer.ggml.padding_token_id"],
        chat_template=fields["tokenizer.chat_template"],
    )


def _generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "pad_token_id": vocabulary.pad_id,
    }


def _write_weights(
    tensors: list[ReaderTensor], config: dict[str, Any], path: Path, progress: Callable[[float], None]
) -> None:
    weights: dict[str, TensorSpec] = {}
    alive = []  # specs hold addresses only
    for index, tensor in enumerate(tensors):
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        part = tensor.name.split(".")[-2]
        if part in ("attn_q", "attn_k"):
            heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
            values = _undo_rope_permutation(values, heads)
        data = to_bfloat16(values)
        alive.append(data)
        weights[_hf_name(tensor.name)] = TensorSpec(
            dtype="bfloat16", shape=data.shape, data_ptr=data.ctypes.data, data_len=data.nbytes
        )
        progress((index + 1) / (len(tensors) + 1))
    serialize_file(weights, str(path), {"format": "pt"})
    path.chmod(0o644)  # the library makes it private; the folder may be shared
    progress(1.0)


def _hf_name(name: str) -> str:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in _LAYER_NAMES:
        raise ConversionFailed(f"the GGUF holds a tensor {name!r} that a Llama model does not have")
    return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{parts[3]}"


def _undo_rope_permutation(weight_NK: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
    """GGUF interleaves the halves of each head's rows (its RoPE turns neighbours); Hugging Face keeps them apart."""
    rows, columns = weight_NK.shape
    halves = weight_NK.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


def to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The upper halves of float32, rounded to nearest, ties to even. Weights hold no NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
