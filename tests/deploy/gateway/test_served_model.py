"""A model folder as the gateway reads it."""

import json
from pathlib import Path

import pytest

from deploy.gateway import SamplingDefaults, load_served_model
from deploy.text import TextError
from tests.deploy.gateway.fakes import TEMPLATE, byte_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 320, "eos_token_id": 258}))
    return tmp_path


def test_a_folder_gives_vocabulary_template_and_ending_tokens(folder: Path) -> None:
    model = load_served_model(folder, model_id="m", max_model_len=100, pool_tokens=64)
    assert model.vocab_size == 320
    assert model.stop_token_ids == (258,)
    assert model.max_tokens == 64
    assert model.template is not None
    assert model.template.render([{"role": "user", "content": "x"}]).endswith("<|im_start|>assistant\n")
    assert model.defaults == SamplingDefaults()


def test_generation_config_adds_ending_tokens_and_defaults(folder: Path) -> None:
    generation = {"eos_token_id": [258, 256], "temperature": 0.6, "top_k": 20, "do_sample": True, "top_p": None}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    model = load_served_model(folder, model_id="m", max_model_len=100, pool_tokens=64)
    assert model.stop_token_ids == (256, 258)
    assert model.defaults == SamplingDefaults(temperature=0.6, top_k=20)


def test_defaults_outside_their_bounds_are_refused_at_the_start(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"temperature": -1}))
    with pytest.raises(TextError, match=r"generation_config\.json: temperature must be a number in \[0, 2\]"):
        load_served_model(folder, model_id="m", max_model_len=100, pool_tokens=64)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"tokenizer\.json does not exist"):
        load_served_model(tmp_path, model_id="m", max_model_len=100, pool_tokens=64)
