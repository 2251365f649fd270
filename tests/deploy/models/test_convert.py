"""A GGUF as a Hugging Face folder: the same weights, the same text splitting, the same bytes each time."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from deploy.models.convert import convert_gguf, to_bfloat16
from deploy.models.errors import ConversionFailed
from tests.deploy.models.conftest import TEMPLATE, TinyModel, write_tiny_gguf


def convert(source: Path, folder: Path) -> Path:
    folder.mkdir()
    convert_gguf(source, folder, "smollm", lambda done: None)
    return folder


def test_weights_are_those_of_the_model_rounded_to_bfloat16(tiny: TinyModel, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(convert(tiny.gguf, tmp_path / "out"))
    weights = model.state_dict()
    assert model.dtype == torch.bfloat16
    for name, weight in tiny.weights.items():
        assert torch.equal(weights[name], torch.from_numpy(weight).to(torch.bfloat16)), name
    assert set(weights) - {"lm_head.weight"} == set(tiny.weights)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_the_config_says_what_the_gguf_says(tiny: TinyModel, tmp_path: Path) -> None:
    config = json.loads((convert(tiny.gguf, tmp_path / "out") / "config.json").read_text())
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "eos_token_id": 2,
    }
    assert {name: config[name] for name in expected} == expected


def test_the_same_gguf_gives_the_same_bytes(tiny: TinyModel, tmp_path: Path) -> None:
    first, second = convert(tiny.gguf, tmp_path / "a"), convert(tiny.gguf, tmp_path / "b")
    names = sorted(path.name for path in first.iterdir())
    assert names == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_the_tokenizer_splits_digits_and_keeps_special_tokens_whole(tiny: TinyModel, tmp_path: Path) -> None:
    folder = convert(tiny.gguf, tmp_path / "out")
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert plain.encode("hello hello12<|im_end|>").tokens == ["hello", "Ġhello", "1", "2", "<|im_end|>"]
    theirs = AutoTokenizer.from_pretrained(folder)
    assert theirs.encode("hello hello12<|im_end|>") == plain.encode("hello hello12<|im_end|>").ids
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (1, 2, 2)
    assert theirs.chat_template == TEMPLATE


@pytest.mark.parametrize("text", ["", "Ünïcödé ßtraße", "你好 🎉👩‍👩‍👧", "\t\r\n  x\u00a0y", "٣١ Ⅷ ½"])
def test_every_text_comes_back(tiny: TinyModel, tmp_path: Path, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(convert(tiny.gguf, tmp_path / "out") / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_rounding_to_bfloat16_is_that_of_torch() -> None:
    values = np.random.default_rng(3).standard_normal(10_000, dtype=np.float32)
    ties = np.array([0x3F808000, 0x3F818000, 0xBF808000, 0x00008000, 0x7F7FFFFF, 0, 0x80000000], dtype=np.uint32)
    values = np.concatenate([values, ties.view(np.float32)])
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(to_bfloat16(values), expected)


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "other.gguf", architecture="gemma")
    with pytest.raises(ConversionFailed, match=r"general.architecture = 'gemma'; only 'llama'"):
        convert(tmp_path / "other.gguf", tmp_path / "out")


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "not.gguf").write_bytes(b"something else entirely" * 10)
    with pytest.raises(ConversionFailed, match=r"not.gguf is not a readable GGUF"):
        convert(tmp_path / "not.gguf", tmp_path / "out")
