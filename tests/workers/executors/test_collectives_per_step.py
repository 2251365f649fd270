"""Copies add no collective: every step makes the same number of calls with and without them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny_models import TinyModel, write_tiny_model
from tests.workers.collective.groups import RankProcess
from tests.workers.executors.targets import count_calls
from workers.executors import new_collective_spec
from workers.spec import RankSpec

NUM_LAYERS = 2


def counts_of(specs: dict[bool, RankSpec]) -> dict[bool, list[list[tuple[int, int]]]]:
    """By `park`: for each rank the counts of each step."""
    ranks = [
        RankProcess(count_calls, rank, {park: replace(spec, rank=rank) for park, spec in specs.items()})
        for rank in range(2)
    ]
    try:
        return {park: [rank.result(300) for rank in ranks] for park in specs}
    finally:
        for rank in ranks:
            rank.end()


@pytest.mark.parametrize(("kind", "backend"), [("shm", "numba"), ("gloo", "numba"), ("gloo", "sdpa")])
def test_a_step_makes_the_same_collectives_with_and_without_copies(tmp_path: Path, kind: str, backend: str) -> None:
    model_dir = write_tiny_model(tmp_path / "llama", TinyModel(num_layers=NUM_LAYERS))

    def spec() -> RankSpec:
        return RankSpec(
            model_dir=str(model_dir),
            rank=0,
            world_size=2,
            collective=new_collective_spec(kind, timeout_s=120),
            num_pages=12,
            arena_pages=4,
            max_model_len=256,
            max_step_tokens=64,
            max_running=4,
            backend=backend,
        )

    counts = counts_of({False: spec(), True: spec()})
    parking = counts[True]
    assert parking == counts[False]
    # One after the embedding, two a layer, and the sampler's; a step without rows makes none.
    assert [own for own, _ in parking[0]] == [2 * NUM_LAYERS + 2] * 6 + [0]
    assert [torch_calls for _, torch_calls in parking[0]] == (
        [own for own, _ in parking[0]] if kind == "gloo" else [0] * 7
    )
