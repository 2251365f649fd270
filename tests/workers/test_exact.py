"""On the CPU kernels a row's logits are the same bits whatever the batch, the order, the chunks and the pages."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from scheduler.plan import Chunk
from scheduler.sampling import SamplingParams
from tests.tiny_models import TinyModel, write_tiny_model
from tests.workers.rank_group import RankGroup, make_spec, running

Float32 = npt.NDArray[np.float32]

# Uneven on two ranks in every way: 2 + 1 KV heads, an odd MLP width, a vocabulary that is no multiple of 16.
MODEL = TinyModel(intermediate_size=203, vocab_size=283)
PROMPTS = [np.random.default_rng(number).integers(3, 283, size=1 + (number * 11) % 45).tolist() for number in range(64)]
LONG = np.random.default_rng(99).integers(3, 283, size=70).tolist()


@pytest.fixture(scope="module", params=["tp1-f32", "tp2-f32", "tp2-bf16"])
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankGroup]:
    folder: Path = write_tiny_model(tmp_path_factory.mktemp("uneven"), MODEL)
    ranks, kv = request.param.split("-")
    spec = make_spec(
        folder,
        world_size=int(ranks[2:]),
        backend="numba",
        dtype="bfloat16",
        kv_dtype="bfloat16" if kv == "bf16" else "float32",
        num_pages=300,
        max_step_tokens=2048,
    )
    with running(spec) as started:
        yield started


@pytest.fixture(scope="module")
def alone(group: RankGroup) -> list[tuple[Float32, Float32]]:
    """For each prompt the logits after it, and those after one token more, computed with nobody else."""
    results = []
    for prompt in PROMPTS:
        group.prefill(0, prompt)
        first = group.logits[0]
        group.decode([0])
        results.append((first, group.logits[0]))
        group.finish([0])
    return results


def prefill_together(group: RankGroup, numbers: Sequence[int]) -> Float32:
    """All prompts whole, in one step, in this order; sequence ids are the prompts' numbers."""
    new = tuple(group.start(number, PROMPTS[number]) for number in numbers)
    grants = tuple(grant for number in numbers for grant in group.grant(number, len(PROMPTS[number])))
    chunks = tuple(Chunk(seq_id=n, start=0, num_tokens=len(PROMPTS[n]), sample=True) for n in numbers)
    group.execute(new=new, grants=grants, chunks=chunks)
    group.note_drawn(numbers)
    return group.logits


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 31, 32, 33, 48, 63, 64])
def test_any_batch_gives_the_bits_of_each_alone(
    group: RankGroup, alone: list[tuple[Float32, Float32]], batch: int
) -> None:
    """Prefill beside others, then decode beside others, in a shuffled order."""
    numbers = np.random.default_rng(batch).permutation(64)[:batch].tolist()
    prefilled = prefill_together(group, numbers)
    for row, number in enumerate(numbers):
        np.testing.assert_array_equal(prefilled[row], alone[number][0])
    numbers.reverse()
    group.decode(numbers)
    decoded = group.logits
    for row, number in enumerate(numbers):
        np.testing.assert_array_equal(decoded[row], alone[number][1])
    group.finish(numbers)


def test_a_prompt_cut_at_any_boundary_gives_the_bits_of_the_whole(group: RankGroup) -> None:
    group.prefill(0, LONG)
    whole = group.logits[0]
    group.finish([0])
    for cut in range(1, len(LONG)):
        group.prefill(0, LONG, cuts=[cut])
        np.testing.assert_array_equal(group.logits[0], whole)
        group.finish([0])


def test_a_prompt_fed_token_by_token_gives_the_bits_of_the_whole(group: RankGroup) -> None:
    group.prefill(0, LONG)
    whole = group.logits[0]
    group.finish([0])
    group.prefill(0, LONG, cuts=range(1, len(LONG)))
    np.testing.assert_array_equal(group.logits[0], whole)
    group.finish([0])


def test_a_chunk_beside_decoding_sequences_changes_nothing_for_either(
    group: RankGroup, alone: list[tuple[Float32, Float32]]
) -> None:
    group.prefill(0, LONG)
    whole = group.logits[0]
    group.finish([0])
    prefill_together(group, [5, 6, 7])
    grants = [grant for number in (5, 6, 7) for grant in group.grant(number, len(PROMPTS[number]) + 1)]
    chunks = [Chunk(seq_id=n, start=len(PROMPTS[n]), num_tokens=1, sample=True) for n in (5, 6, 7)]
    new, chunk = group.start(0, LONG), Chunk(seq_id=0, start=0, num_tokens=33, sample=False)
    grants += group.grant(0, len(LONG))
    group.execute(new=(new,), grants=tuple(grants), chunks=(chunks[0], chunk, *chunks[1:]))
    for row, number in enumerate((5, 6, 7)):
        np.testing.assert_array_equal(group.logits[row], alone[number][1])
    group.execute(chunks=(Chunk(seq_id=0, start=33, num_tokens=37, sample=True),))
    np.testing.assert_array_equal(group.logits[0], whole)
    group.finish([0, 5, 6, 7])


def test_pages_that_moved_through_the_arena_give_the_same_bits(group: RankGroup) -> None:
    sampling = SamplingParams(temperature=1.0, seed=3)
    undisturbed, bits = [group.prefill(0, LONG, sampling)], []
    for _ in range(20):
        undisturbed += group.decode([0])
        bits.append(group.logits[0])
    group.finish([0])
    made = [group.prefill(0, LONG, sampling)]
    for step in range(20):
        if step % 5 == 0:
            group.move_through_arena(0)
        made += group.decode([0])
        np.testing.assert_array_equal(group.logits[0], bits[step])
    assert made == undisturbed
    group.finish([0])


def test_a_replayed_sequence_gives_the_bits_of_the_one_that_decoded(group: RankGroup) -> None:
    """Dropping the pages and prefilling prompt and output again is byte-identical: what a recompute relies on."""
    made = group.generate(0, LONG, 12)
    bits = group.logits[0]
    group.finish([0])
    group.prefill(0, LONG + made[:-1])
    np.testing.assert_array_equal(group.logits[0], bits)
    group.finish([0])


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_fused_halves_of_a_layer_give_the_bits_of_single_operations(tmp_path: Path, kind: str) -> None:
    """One thread runs a layer as two kernels; several threads run its operations one by one, each split over them."""
    folder = write_tiny_model(tmp_path, TinyModel(kind=kind, settings={"attention_bias": True}))
    results = []
    for num_threads in (1, 2):
        with running(make_spec(folder, backend="numba", dtype="bfloat16", num_threads=num_threads)) as group:
            made = group.generate(0, LONG, 10)
            results.append((made, group.logits))
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])
