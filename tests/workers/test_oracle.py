"""Against transformers' own models in fp32 on the same weights: logits within 2e-3, greedy tokens equal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny_models import TinyModel, load_oracle, write_tiny_model
from tests.workers.rank_group import RankGroup, make_spec, running

LOGITS_WITHIN = 2e-3
EITHER_IS_RIGHT_WITHIN = 1e-4

LLAMA_9_3 = TinyModel(kind="llama", num_heads=9, num_kv_heads=3)
LLAMA_TIED_BIASED = TinyModel(
    num_heads=5, num_kv_heads=1, tied=True, settings={"attention_bias": True, "mlp_bias": True}
)
QWEN2_5_1 = TinyModel(kind="qwen2", num_heads=5, num_kv_heads=1)
QWEN3_15_5 = TinyModel(kind="qwen3", num_heads=15, num_kv_heads=5, tied=True)

SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}


def prompts(count: int, vocab_size: int, seed: int = 1) -> list[list[int]]:
    """Of lengths 3, 10, 17, ...: most end inside a page, one fills it."""
    draw = np.random.default_rng(seed)
    return [draw.integers(3, vocab_size, size=3 + 7 * number).tolist() for number in range(count)]


def generate_together(group: RankGroup, texts: list[list[int]], count: int) -> tuple[list[list[int]], list[Any]]:
    """Greedy tokens of all texts decoded in one batch, and the logits each was chosen from."""
    ids = list(range(len(texts)))
    made: list[list[int]] = []
    logits: list[list[Any]] = []
    for seq_id, text in enumerate(texts):
        made.append([group.prefill(seq_id, text)])
        logits.append([group.logits[0]])
    for _ in range(count - 1):
        for seq_id, token in enumerate(group.decode(ids)):
            made[seq_id].append(token)
            logits[seq_id].append(group.logits[seq_id])
    return made, [np.stack(rows) for rows in logits]


def check_against_oracle(folder: Path, texts: list[list[int]], made: list[list[int]], logits: list[Any]) -> None:
    oracle = load_oracle(folder)
    for text, tokens, ours in zip(texts, made, logits, strict=True):
        with torch.no_grad():
            theirs = oracle(torch.tensor([text + tokens[:-1]])).logits[0, len(text) - 1 :].numpy()
        assert np.abs(ours - theirs).max() < LOGITS_WITHIN
        behind = theirs.max(axis=1) - theirs[np.arange(len(tokens)), tokens]
        assert behind.max() < EITHER_IS_RIGHT_WITHIN


MODELS = [LLAMA_9_3, LLAMA_TIED_BIASED, QWEN2_5_1, QWEN3_15_5]


@pytest.mark.parametrize("backend", ["numba", "sdpa"])
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", MODELS, ids=["llama-9-3", "biased-5-1", "qwen2-5-1", "qwen3-15-5"])
def test_eight_prompts_of_128_tokens_equal_the_oracle(
    tmp_path: Path, model: TinyModel, world_size: int, backend: str
) -> None:
    folder = write_tiny_model(tmp_path, model)
    texts = prompts(8, model.vocab_size)
    dtype = "bfloat16" if backend == "numba" else "float32"
    with running(make_spec(folder, world_size=world_size, backend=backend, dtype=dtype)) as group:
        made, logits = generate_together(group, texts, 128)
    check_against_oracle(folder, texts, made, logits)


@pytest.mark.parametrize("world_size", [3, 4, 5, 9])
def test_more_ranks_than_kv_heads_equal_the_oracle(tmp_path: Path, world_size: int) -> None:
    folder = write_tiny_model(tmp_path, LLAMA_9_3)
    texts = prompts(2, LLAMA_9_3.vocab_size)
    with running(make_spec(folder, world_size=world_size)) as group:
        made, logits = generate_together(group, texts, 4)
    check_against_oracle(folder, texts, made, logits)


@pytest.mark.parametrize("kind", list(SCALINGS))
def test_every_rope_scaling_equals_the_oracle(tmp_path: Path, kind: str) -> None:
    """Past the trained length too, where scaling shows. `dynamic` is compared token by token, as it is decoded."""
    model = TinyModel(max_positions=64 if kind != "llama3" else 256, settings={"rope_parameters": SCALINGS[kind]})
    folder = write_tiny_model(tmp_path, model)
    text = prompts(8, model.vocab_size)[7]
    with running(make_spec(folder, max_model_len=128)) as group:
        made, logits = generate_together(group, [text], 8 if kind == "dynamic" else 60)
    check_against_oracle(folder, [text], made, logits)


def test_bfloat16_pages_stay_close_to_the_oracle(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, LLAMA_9_3)
    text = prompts(8, LLAMA_9_3.vocab_size)[7]
    with running(make_spec(folder, kv_dtype="bfloat16")) as group:
        group.prefill(0, text)
        logits = group.logits[0]
    with torch.no_grad():
        theirs = load_oracle(folder)(torch.tensor([text])).logits[0, -1].numpy()
    assert 0 < np.abs(logits - theirs).max() < 0.1
