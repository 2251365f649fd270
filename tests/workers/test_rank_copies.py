"""Copies run beside the steps: they change no token and no collective, and no plan may touch what is under one."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scheduler.plan import Chunk, CopyIn, CopyOut, CopyOutcome, NewSequence, PageGrant, PageReset
from scheduler.sampling import SamplingParams
from tests.tiny_models import write_tiny_model
from tests.workers.rank_group import GREEDY, RankGroup, make_spec, running
from workers.copier import CopyDone
from workers.errors import RankDisagreement

PROMPT = [17, 33, 201, 5, 90, 90, 14, 7, 61, 250, 44, 8, 19, 77, 120, 3, 9, 31, 28, 65]
OTHER = [71, 9, 14, 200, 13, 66, 4, 5, 6, 250, 45, 8, 20, 78, 12, 30, 90, 3, 29, 66, 101, 44]
PENALIZED = SamplingParams(seed=5, temperature=1.5, repetition_penalty=1.1, presence_penalty=0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(params=[1, 2], ids=["tp1", "tp2"])
def group(folder: Path, request: pytest.FixtureRequest) -> Iterator[RankGroup]:
    with running(make_spec(folder, num_pages=32, arena_pages=16, world_size=request.param)) as ranks:
        yield ranks


@pytest.fixture
def one(folder: Path) -> Iterator[RankGroup]:
    with running(make_spec(folder, num_pages=32, arena_pages=16)) as ranks:
        yield ranks


def solo(group: RankGroup, prompt: list[int], count: int, sampling: SamplingParams) -> list[int]:
    made = group.generate(100, prompt, count, sampling)
    group.finish([100])
    return made


def decode_chunk(group: RankGroup, seq_id: int) -> Chunk:
    return Chunk(seq_id=seq_id, start=group.num_known(seq_id) - 1, num_tokens=1, sample=True)


@pytest.mark.parametrize("sampling", [GREEDY, PENALIZED], ids=["greedy", "penalized"])
def test_a_sequence_parked_and_restored_while_another_steps_draws_the_tokens_of_its_solo_run(
    group: RankGroup, sampling: SamplingParams
) -> None:
    """Both copies are in flight over several steps of the other; its pages are overwritten while it is away."""
    expected = [solo(group, PROMPT, 24, sampling), solo(group, OTHER, 24, sampling)]
    made = [[group.prefill(1, PROMPT, sampling)], [group.prefill(2, OTHER, sampling)]]
    for token, tokens in zip(group.decode([1, 2]), made, strict=True):
        tokens.append(token)
    with group.copies_held():
        out = group.start_park(2)
        for _ in range(4):
            made[0] += group.decode([1])
        assert [rank.num_copies for rank in group.ranks] == [1] * len(group.ranks)
    group.finish_park(2, out)
    group.prefill(3, [7] * 32)
    made[0] += group.decode([1])
    group.finish([3])
    with group.copies_held():
        back = group.start_restore(2)
        for _ in range(4):
            made[0] += group.decode([1])
    group.finish_restore(2, back)
    while len(made[1]) < 24:
        pair = [1, 2] if len(made[0]) < 24 else [2]
        for seq_id, token in zip(pair, group.decode(pair), strict=True):
            made[seq_id - 1].append(token)
    assert made == expected


@pytest.mark.parametrize("sampling", [GREEDY, PENALIZED], ids=["greedy", "penalized"])
def test_a_sequence_computed_again_after_its_pages_were_dropped_draws_the_same_tokens(
    group: RankGroup, sampling: SamplingParams
) -> None:
    expected = solo(group, PROMPT, 30, sampling)
    made = group.generate(1, PROMPT, 10, sampling)
    made.append(group.recompute(1, cuts=[5, 16, 20]))
    while len(made) < 20:
        made += group.decode([1])
    made.append(group.recompute(1))
    while len(made) < 30:
        made += group.decode([1])
    assert made == expected


def test_a_sequence_parked_in_the_middle_of_its_prompt_goes_on_there(group: RankGroup) -> None:
    expected = solo(group, OTHER, 6, PENALIZED)
    new, grants = group.start(1, OTHER, PENALIZED), tuple(group.grant(1, len(OTHER)))
    group.execute(new=(new,), grants=grants, chunks=(Chunk(seq_id=1, start=0, num_tokens=17, sample=False),))
    group.finish_park(1, group.start_park(1))
    group.prefill(2, [7] * 32)
    back = group.start_restore(1)
    group.land(back)
    reset = PageReset(seq_id=1, page_ids=tuple(group.pages[1]), num_computed=17)
    chunk = Chunk(seq_id=1, start=17, num_tokens=5, sample=True)
    made = [token for _, token in group.execute(resets=(reset,), chunks=(chunk,)).tokens]
    group.note_drawn([1])
    while len(made) < 6:
        made += group.decode([1])
    assert made == expected


def test_a_copy_takes_what_the_plans_before_its_own_have_computed(group: RankGroup) -> None:
    """A token is sampled in the plan before, and its position is computed by none after it."""
    expected = solo(group, PROMPT, 3, GREEDY)
    made = [group.prefill(1, PROMPT), *group.decode([1])]
    group.finish_park(1, group.start_park(1))
    group.finish_restore(1, group.start_restore(1))
    assert [*made, *group.decode([1])] == expected


def test_steps_with_copies_make_the_same_collectives(folder: Path) -> None:
    with running(make_spec(folder, num_pages=32, arena_pages=16, world_size=2)) as pair:
        pair.prefill(1, PROMPT)
        pair.prefill(2, PROMPT)
        calls = [pair.collectives[0].num_calls]

        def decode_beside(copy_id: int) -> int:
            pair.note_drawn([1])
            calls.append(pair.collectives[0].num_calls)
            return copy_id

        pair.decode([1])
        calls.append(pair.collectives[0].num_calls)
        with pair.copies_held():
            out = decode_beside(pair.start_park(2, chunks=(decode_chunk(pair, 1),)))
        pair.finish_park(2, out)
        back = decode_beside(pair.start_restore(2, chunks=(decode_chunk(pair, 1),)))
        pair.finish_restore(2, back)
        pair.decode([1, 2])
        calls.append(pair.collectives[0].num_calls)
    # One for the embedding, two a layer, one for the head.
    assert [after - before for before, after in pairwise(calls)] == [1 + 2 * 2 + 1] * 4


def test_a_page_may_be_used_as_soon_as_its_copy_is_told(one: RankGroup) -> None:
    rank = one.ranks[0]
    in_flight: list[int] = []
    end_copy = rank._on_copy

    def note(done: CopyDone) -> None:
        in_flight.append(rank.num_copies)
        end_copy(done)

    rank._on_copy = note
    one.execute(new=(one.start(1, PROMPT),))
    for copy_id in range(1, 9):
        out = CopyOut(copy_id=copy_id, page_ids=(0, 1), arena_ids=(0, 1))
        one.execute(copies_out=(out,))
        assert one.land(copy_id) == [CopyOutcome.DONE]
        one.execute(resets=(PageReset(seq_id=1, page_ids=(0, 1), num_computed=0),))
    assert in_flight == [0] * 8


NEW = NewSequence(seq_id=5, tokens=tuple(PROMPT), num_prompt_tokens=20, sampling=GREEDY)
BUSY_OUT = CopyOut(copy_id=7, page_ids=(4, 5), arena_ids=(2, 3))
BUSY_IN = CopyIn(copy_id=8, arena_ids=(6,), page_ids=(9,))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"grants": (PageGrant(seq_id=1, page_ids=(5,)),)}, "grant to sequence 1 touches page 5"),
        ({"grants": (PageGrant(seq_id=1, page_ids=(20, 9)),)}, "grant to sequence 1 touches page 9"),
        ({"resets": (PageReset(seq_id=1, page_ids=(9,), num_computed=16),)}, "reset of sequence 1 touches page 9"),
        (
            {"new": (NewSequence(seq_id=5, tokens=(1, 2), num_prompt_tokens=2, sampling=GREEDY, page_ids=(4,)),)},
            "new sequence 5 touches page 4",
        ),
        ({"chunks": (Chunk(seq_id=2, start=20, num_tokens=1, sample=True),)}, "chunk of sequence 2 touches page 4"),
        ({"copies_in": (CopyIn(copy_id=9, arena_ids=(0,), page_ids=(4,)),)}, "copy 9 touches page 4"),
        ({"copies_out": (CopyOut(copy_id=9, page_ids=(9,), arena_ids=(0,)),)}, "copy 9 touches page 9"),
        ({"copies_out": (CopyOut(copy_id=9, page_ids=(0,), arena_ids=(6,)),)}, "copy 9 touches arena slot 6"),
        ({"copies_in": (CopyIn(copy_id=9, arena_ids=(3,), page_ids=(0,)),)}, "copy 9 touches arena slot 3"),
        ({"freed_arena_ids": (0, 2)}, "frees what it touches arena slot 2"),
    ],
)
def test_a_plan_that_touches_what_is_under_a_copy_is_refused(
    one: RankGroup, changes: dict[str, Any], named: str
) -> None:
    one.free_pages = [31, 30, 29, 28, 5, 4, 1, 0]
    one.prefill(1, PROMPT)
    one.prefill(2, PROMPT)
    assert (one.pages[1], one.pages[2]) == ([0, 1], [4, 5])
    with one.copies_held():
        one.execute(copies_out=(BUSY_OUT,), copies_in=(BUSY_IN,))
        with pytest.raises(RankDisagreement, match=f"{named}, which is under a copy"):
            one.execute(**changes)
    one.land(7)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"copies_out": (CopyOut(copy_id=1, page_ids=(3,), arena_ids=(3,)),)}, "copy 1, whose id has been used"),
        ({"copies_in": (CopyIn(copy_id=1, page_ids=(3,), arena_ids=(3,)),)}, "copy 1, whose id has been used"),
        ({"copies_out": (CopyOut(copy_id=2, page_ids=(3, 4), arena_ids=(3,)),)}, "2 pages with 1 slots"),
        ({"copies_out": (CopyOut(copy_id=2, page_ids=(3, 3), arena_ids=(3, 4)),)}, "each named once"),
        ({"copies_in": (CopyIn(copy_id=2, page_ids=(3, 4), arena_ids=(3, 3)),)}, "each named once"),
        ({"copies_out": (CopyOut(copy_id=2, page_ids=(32,), arena_ids=(3,)),)}, r"copy 2 .* outside 0\.\.31"),
        ({"copies_out": (CopyOut(copy_id=2, page_ids=(3,), arena_ids=(16,)),)}, r"copy 2 .* outside 0\.\.15"),
        ({"copies_in": (CopyIn(copy_id=2, page_ids=(3,), arena_ids=(-1,)),)}, r"copy 2 .* outside 0\.\.15"),
        ({"freed_arena_ids": (16,)}, r"plan 1 is given page or slot 16\.\.16, outside 0\.\.15"),
    ],
)
def test_a_copy_that_cannot_be_meant_is_refused(one: RankGroup, changes: dict[str, Any], named: str) -> None:
    one.execute(copies_out=(CopyOut(copy_id=1, page_ids=(0,), arena_ids=(0,)),))
    one.land(1)
    with pytest.raises(RankDisagreement, match=named):
        one.execute(**changes)


def test_two_copies_of_one_plan_may_not_share_a_page(one: RankGroup) -> None:
    out = CopyOut(copy_id=1, page_ids=(3,), arena_ids=(3,))
    with pytest.raises(RankDisagreement, match="copy 2 touches page 3"):
        one.execute(copies_out=(out,), copies_in=(CopyIn(copy_id=2, page_ids=(3,), arena_ids=(4,)),))
