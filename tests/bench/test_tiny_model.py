"""The bench's own tiny model: a folder like any other, the same bytes each time, and one that two ranks can load."""

import hashlib
import json
from pathlib import Path

import pytest

from bench.tiny_model import TinyModel, vocab_size_of, write_tiny_model
from workers.model.config import read_model_config
from workers.model.partition import partition
from workers.weights.checkpoint import Checkpoint


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_the_config_is_read_as_a_llama_whose_heads_divide_unevenly(tmp_path: Path) -> None:
    config = read_model_config(write_tiny_model(tmp_path / "m"))
    assert (config.architecture, config.num_layers, config.max_positions) == ("LlamaForCausalLM", 2, 1024)
    assert [part.kv_heads.size for part in partition(config, 2)] == [2, 1]


def test_every_tensor_has_the_shape_that_its_name_asks_for(tmp_path: Path) -> None:
    model = TinyModel(num_layers=1)
    with Checkpoint(write_tiny_model(tmp_path / "m", model)) as checkpoint:
        for name, shape in model.shapes().items():
            assert tuple(checkpoint.read(name, shape).shape) == shape


def test_a_seed_gives_the_same_bytes_and_another_gives_others(tmp_path: Path) -> None:
    first, second, other = (
        digest(write_tiny_model(tmp_path / name, TinyModel(num_layers=1, seed=seed)))
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first == second != other


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja"])
def test_a_tokenizer_is_taken_along_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / name).write_text("as it is")
    (tmp_path / "from" / "model.safetensors").write_text("not this")
    folder = write_tiny_model(tmp_path / "m", TinyModel(num_layers=1, vocab_size=300), tokenizer_dir=tmp_path / "from")
    assert (folder / name).read_text() == "as it is"
    assert sorted(path.name for path in folder.iterdir()) == sorted(["config.json", "model.safetensors", name])
    assert vocab_size_of(folder) == json.loads((folder / "config.json").read_text())["vocab_size"] == 300
