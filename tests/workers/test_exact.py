"""On the CPU kernels a row's logits are the same bits whatever the batch, the order, the chunks and the pages."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from scheduler.plan import Chunk, CopyIn, CopyOut
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
    undisturbed, bits = run_alone(group, LONG, sampling, 20)
    made = [group.prefill(0, LONG, sampling)]
    for step in range(20):
        if step % 5 == 0:
            group.move_through_arena(0)
        made += group.decode([0])
        np.testing.assert_array_equal(group.logits[0], bits[step])
    assert made == undisturbed
    group.finish([0])


def test_a_replayed_sequence_gives_the_bits_of_the_one_that_decoded(group: RankGroup) -> None:
    """A new sequence that begins with the prompt and the output of another goes on as that one would."""
    made = group.generate(0, LONG, 12)
    bits = group.logits[0]
    group.finish([0])
    group.prefill(0, LONG + made[:-1])
    np.testing.assert_array_equal(group.logits[0], bits)
    group.finish([0])


def test_a_sequence_computed_again_in_other_chunks_gives_the_same_bits(group: RankGroup) -> None:
    """What a recompute park relies on: its pages are dropped, others write over them, its tokens stay on the ranks."""
    sampling = SamplingParams(temperature=1.0, seed=3, repetition_penalty=1.2)
    undisturbed, bits = run_alone(group, LONG, sampling, 20)
    made = [group.prefill(0, LONG, sampling)]
    for step in range(20):
        if step % 5 == 0:
            group.execute(resets=(group.drop(0),))
            group.prefill(-1, [7] * len(LONG))
            group.finish([-1])
            made.append(group.recompute(0, cuts=range(step + 1, len(LONG), 23)))
        else:
            made += group.decode([0])
        np.testing.assert_array_equal(group.logits[0], bits[step])
    assert made == undisturbed
    group.finish([0])


def test_choices_that_share_a_prompts_pages_give_the_bits_of_separate_requests(group: RankGroup) -> None:
    """Through a park and a restore of the family as one, too: the shared pages are copied once."""
    samplings = [SamplingParams(temperature=1.0, seed=3 + choice) for choice in range(3)]
    separate = [run_alone(group, LONG, sampling, 20) for sampling in samplings]
    made = [[group.prefill(0, LONG, samplings[0])]]
    shared = group.pages[0][: (len(LONG) - 1) // group.spec.page_size]
    first = len(shared) * group.spec.page_size
    new = tuple(group.start(choice, LONG, samplings[choice], borrowed=shared) for choice in (1, 2))
    grants = tuple(grant for choice in (1, 2) for grant in group.grant(choice, len(LONG)))
    chunks = tuple(Chunk(seq_id=n, start=first, num_tokens=len(LONG) - first, sample=True) for n in (1, 2))
    made += [[token] for _, token in group.execute(new=new, grants=grants, chunks=chunks).tokens]
    group.note_drawn([1, 2])
    for step in range(20):
        if step == 7:
            move_family_through_arena(group, [0, 1, 2], len(shared))
        for choice, token in enumerate(group.decode([0, 1, 2])):
            made[choice].append(token)
            np.testing.assert_array_equal(group.logits[choice], separate[choice][1][step])
    assert made == [tokens for tokens, _ in separate]
    group.finish([0, 1, 2])


def run_alone(
    group: RankGroup, prompt: Sequence[int], sampling: SamplingParams, steps: int
) -> tuple[list[int], list[Float32]]:
    """`steps` + 1 tokens of a sequence, and the logits that all but the first were drawn from."""
    made, bits = [group.prefill(0, prompt, sampling)], []
    for _ in range(steps):
        made += group.decode([0])
        bits.append(group.logits[0])
    group.finish([0])
    return made, bits


def move_family_through_arena(group: RankGroup, choices: Sequence[int], num_shared: int) -> None:
    """One copy out and one back of the shared pages and everyone's own; between them others write over the pages."""
    held = group.pages[choices[0]][:num_shared]
    held += [page for choice in choices for page in group.pages[choice][num_shared:]]
    slots = tuple(range(len(held)))
    out = CopyOut(copy_id=group.new_copy_id(), page_ids=tuple(held), arena_ids=slots)
    group.execute(copies_out=(out,))
    group.land(out.copy_id)
    group.free_pages += held
    group.prefill(-1, [7] * (group.spec.page_size * len(held)))
    group.finish([-1])
    into = [group.free_pages.pop(0) for _ in held]
    back = CopyIn(copy_id=group.new_copy_id(), arena_ids=slots, page_ids=tuple(into))
    group.execute(copies_in=(back,))
    group.land(back.copy_id)
    moved = dict(zip(held, into, strict=True))
    for choice in choices:
        group.pages[choice] = [moved[page] for page in group.pages[choice]]
    group.execute(freed_arena_ids=slots, resets=tuple(group.reset(choice) for choice in choices))


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
