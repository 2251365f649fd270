"""Broken model folders: each fault is one line that names the file and the tensor; sound ones load slice by slice."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tiny_models import TinyModel, write_tiny_model
from workers.errors import BrokenModel
from workers.model.config import read_model_config
from workers.model.partition import Span, partition
from workers.ops.torch_ops import TorchLinear, TorchOps
from workers.weights.checkpoint import Checkpoint
from workers.weights.loader import load_shard
from workers.weights.shard_weights import ShardWeights

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def load(folder: Path, world_size: int = 1, rank: int = 0) -> ShardWeights[torch.Tensor, TorchLinear]:
    config = read_model_config(folder)
    part = partition(config, world_size)[rank]
    return load_shard(folder, config, part, TorchOps("cpu", torch.float32))


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_one_file_and_many_shards_give_the_same_weights(tmp_path: Path) -> None:
    whole = load(write_tiny_model(tmp_path / "one"))
    folder = write_tiny_model(tmp_path / "many", max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 3
    sharded = load(folder)
    for one, other in zip(whole.layers, sharded.layers, strict=True):
        torch.testing.assert_close(one.qkv.weight, other.qkv.weight, rtol=0, atol=0)
        torch.testing.assert_close(one.down.weight, other.down.weight, rtol=0, atol=0)


def test_ranks_hold_their_rows_and_columns(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    parts = partition(read_model_config(folder), 2)
    for rank, part in enumerate(parts):
        layer = load(folder, 2, rank).layers[0]
        q = tensors["model.layers.0.self_attn.q_proj.weight"].float()
        down = tensors["model.layers.0.mlp.down_proj.weight"].float()
        rows = slice(part.query_heads.start * 16, part.query_heads.end * 16)
        torch.testing.assert_close(layer.qkv.weight[: part.query_heads.size * 16], q[rows], rtol=0, atol=0)
        torch.testing.assert_close(layer.down.weight, down[:, part.mlp.start : part.mlp.end], rtol=0, atol=0)


def test_the_bias_of_summed_layers_enters_once(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, TinyModel(settings={"attention_bias": True, "mlp_bias": True}))
    first, second = load(folder, 2, 0).layers[0], load(folder, 2, 1).layers[0]
    assert (first.o.bias is None, second.o.bias is None) == (False, True)
    assert (first.down.bias is None, second.down.bias is None) == (False, True)
    assert second.qkv.bias is not None


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_progress_counts_every_tensor_to_the_end(tmp_path: Path, kind: str) -> None:
    folder = write_tiny_model(tmp_path, TinyModel(kind=kind))
    config = read_model_config(folder)
    seen: list[tuple[int, int]] = []
    ops = TorchOps("cpu", torch.float32)
    load_shard(folder, config, partition(config, 1)[0], ops, lambda done, total: seen.append((done, total)))
    total = len(load_file(folder / "model.safetensors"))
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_only_the_slice_asked_for_is_given(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    expected = load_file(folder / "model.safetensors")[Q_PROJ]
    with Checkpoint(folder) as checkpoint:
        rows = checkpoint.read(Q_PROJ, (144, 144), rows=Span(start=3, end=9))
        columns = checkpoint.read(Q_PROJ, (144, 144), columns=Span(start=5, end=7))
    assert torch.equal(rows, expected[3:9])
    assert torch.equal(columns, expected[:, 5:7])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(BrokenModel, match=r"model\.safetensors: no such file; it should hold tensor model\."):
        load(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, max_shard_size="40KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shard = index["weight_map"][Q_PROJ]
    (folder / shard).unlink()
    with pytest.raises(BrokenModel, match=f"{shard}: no such file; it should hold tensor model"):
        load(folder)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path) / "model.safetensors"
    os.truncate(path, path.stat().st_size - 7)
    with pytest.raises(BrokenModel, match=r"model\.safetensors: damaged or truncated"):
        load(tmp_path)


def test_a_file_that_is_not_safetensors_is_named(tmp_path: Path) -> None:
    (write_tiny_model(tmp_path) / "model.safetensors").write_bytes(b"not a tensor in sight")
    with pytest.raises(BrokenModel, match=r"model\.safetensors: damaged or truncated"):
        load(tmp_path)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    rewrite(folder, lambda tensors: tensors.__delitem__(Q_PROJ))
    with pytest.raises(BrokenModel, match=f"model.safetensors: tensor {Q_PROJ} is missing"):
        load(folder)


def test_a_tensor_missing_from_the_index_is_named(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, max_shard_size="40KB")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"][Q_PROJ]
    path.write_text(json.dumps(index))
    with pytest.raises(BrokenModel, match=f"index.json: tensor {Q_PROJ} is missing"):
        load(folder)


def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, max_shard_size="40KB")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][Q_PROJ] = "../elsewhere.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(BrokenModel, match=r"'\.\./elsewhere\.safetensors' .* is not a plain file name"):
        load(folder)


def test_a_wrong_shape_is_named_with_both(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    rewrite(folder, lambda tensors: tensors.update({Q_PROJ: torch.zeros(144, 100, dtype=torch.bfloat16)}))
    with pytest.raises(BrokenModel, match=rf"{Q_PROJ} has shape \[144, 100\], the config demands \[144, 144\]"):
        load(folder)


def test_a_wrong_dtype_is_named(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    rewrite(folder, lambda tensors: tensors.update({Q_PROJ: torch.zeros(144, 144, dtype=torch.int8)}))
    with pytest.raises(BrokenModel, match=f"{Q_PROJ} is I8; supported are BF16, F16, F32"):
        load(folder)
