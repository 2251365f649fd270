"""The default model against transformers in fp32 on the same weights: 8 prompts, 128 greedy tokens each, on 1 and 2
ranks.
"""

import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.workers.rank_group import make_spec, running
from tests.workers.test_oracle import check_against_oracle, generate_together
from workers.spec import CollectiveSpec

PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "def fibonacci(n):",
    "The three laws of thermodynamics are",
    "Once upon a time, in a village at the foot of a mountain, there lived",
    "List five fruits and their colours.",
    "Explain to a child why the sky is blue, in a few sentences, and why it turns red in the evening.",
    "1, 1, 2, 3, 5, 8, 13,",
)


@pytest.mark.model
@pytest.mark.parametrize("world_size", [1, 2])
def test_smollm2_speaks_as_transformers_does(smollm2_dir: Path, world_size: int) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    texts = [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in PROMPTS]
    link = CollectiveSpec(kind="shm", shm_path=f"/dev/shm/parkade-test-{os.getpid()}")
    spec = make_spec(smollm2_dir, world_size=world_size, backend="numba", dtype="bfloat16", collective=link)
    with running(spec) as group:
        made, logits = generate_together(group, texts, 128)
    assert "Paris" in tokenizer.decode(made[0])
    check_against_oracle(smollm2_dir, texts, made, logits)
