"""A model folder of a few kilobytes, as the server's checks see one."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "eos_token_id": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "model_type": "llama",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 64,
}


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """Config and two weight files with an index; the tensors in them are only as many as the checks need."""
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for number in (1, 2):
        tensors = {f"tensor{number}": np.zeros((4, 4), dtype=np.float32)}
        save_file(tensors, folder / f"model-0000{number}-of-00002.safetensors")
    weight_map = {f"tensor{number}": f"model-0000{number}-of-00002.safetensors" for number in (1, 2)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder
