"""One rank over plans: what it mirrors and what it refuses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.plan import Chunk, NewSequence, PageGrant, PageReset
from tests.tiny_models import write_tiny_model
from tests.workers.rank_group import GREEDY, RankGroup, make_spec, running
from workers.errors import BackendUnavailable, CannotPartition, DoesNotFit, RankDisagreement
from workers.rank import Rank

PROMPT = [17, 33, 201, 5, 90, 90, 14, 7, 61, 250, 44, 8, 19, 77, 120, 3, 9, 31, 28, 65]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def group(folder: Path) -> Iterator[RankGroup]:
    with running(make_spec(folder, num_pages=32, max_model_len=128, max_step_tokens=64, max_running=4)) as ranks:
        yield ranks


@pytest.fixture
def pair(folder: Path) -> Iterator[RankGroup]:
    with running(make_spec(folder, num_pages=32, world_size=2)) as ranks:
        yield ranks


def test_a_plan_out_of_turn_is_refused(group: RankGroup) -> None:
    group.execute()
    group.step = 5
    with pytest.raises(RankDisagreement, match="plan 5 came where plan 1 was due"):
        group.execute()


def test_tokens_come_back_in_plan_order(group: RankGroup) -> None:
    for seq_id in (4, 2, 9):
        group.prefill(seq_id, PROMPT)
    chunks = tuple(Chunk(seq_id=seq_id, start=20, num_tokens=1, sample=True) for seq_id in (9, 4))
    answer = group.execute(chunks=chunks)
    assert [seq_id for seq_id, _ in answer.tokens] == [9, 4]
    assert answer.step == 3
    assert answer.step_s > 0


def test_a_finished_sequence_is_forgotten(group: RankGroup) -> None:
    group.prefill(1, PROMPT)
    group.execute(finished=(1,))
    assert group.ranks[0].num_sequences == 0
    with pytest.raises(RankDisagreement, match="sequence 1, which this rank does not know"):
        group.execute(chunks=(Chunk(seq_id=1, start=20, num_tokens=1, sample=True),))


def test_a_sequence_id_can_be_used_again_after_its_end(group: RankGroup) -> None:
    first = group.generate(1, PROMPT, 5)
    group.finish([1])
    assert group.generate(1, PROMPT, 5) == first


def test_a_chunk_sent_before_an_end_was_known_is_harmless(group: RankGroup) -> None:
    """Plan n + 1 may continue a sequence that ended in step n; the end comes with plan n + 2."""
    group.prefill(1, PROMPT)
    group.decode([1])
    assert len(group.decode([1])) == 1
    group.execute(finished=(1,))
    assert group.ranks[0].num_sequences == 0


NEW = NewSequence(seq_id=1, tokens=tuple(PROMPT), num_prompt_tokens=20, sampling=GREEDY)
GRANT = PageGrant(seq_id=1, page_ids=(0, 1))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"finished": (7,)}, "sequence 7, which this rank does not know"),
        ({"new": (NEW, NEW)}, "sequence 1 as new, but this rank knows it"),
        ({"grants": (PageGrant(seq_id=7, page_ids=(1,)),)}, "sequence 7"),
        ({"new": (NEW,), "grants": (PageGrant(seq_id=1, page_ids=(32,)),)}, r"outside 0\.\.31"),
        ({"new": (NEW,), "grants": (PageGrant(seq_id=1, page_ids=tuple(range(9))),)}, "9 pages; the longest holds 8"),
        ({"new": (NEW,), "chunks": (Chunk(seq_id=1, start=0, num_tokens=20, sample=True),)}, "pages for 0"),
        (
            {"new": (NEW,), "grants": (GRANT,), "chunks": (Chunk(seq_id=1, start=0, num_tokens=21, sample=True),)},
            r"20 tokens, 0 computed and pages for 32; the plan computes \[0, 21\)",
        ),
        (
            {"new": (NEW,), "grants": (GRANT,), "chunks": (Chunk(seq_id=1, start=4, num_tokens=16, sample=True),)},
            r"0 computed .* the plan computes \[4, 20\)",
        ),
        (
            {"new": (NEW,), "grants": (GRANT,), "chunks": (Chunk(seq_id=1, start=0, num_tokens=19, sample=True),)},
            r"the plan computes \[0, 19\), sample True",
        ),
        (
            {"new": (NEW,), "grants": (GRANT,), "chunks": (Chunk(seq_id=1, start=0, num_tokens=65, sample=True),)},
            "65 tokens of 1 sequences; the bounds are 64 and 4",
        ),
        (
            {"new": (NEW,), "grants": (GRANT,), "chunks": (Chunk(seq_id=1, start=0, num_tokens=9, sample=False),) * 2},
            "two chunks of one sequence",
        ),
        ({"resets": (PageReset(seq_id=1, page_ids=(), num_computed=0),)}, "sequence 1, which this rank does not know"),
        ({"new": (NEW,), "resets": (PageReset(seq_id=1, page_ids=(32,), num_computed=0),)}, r"outside 0\.\.31"),
        (
            {"new": (NEW,), "resets": (PageReset(seq_id=1, page_ids=(0, 1), num_computed=21),)},
            "20 tokens and pages for 32; the plan counts 21 as computed",
        ),
        (
            {"new": (NEW,), "resets": (PageReset(seq_id=1, page_ids=(0,), num_computed=17),)},
            "20 tokens and pages for 16; the plan counts 17 as computed",
        ),
        ({"new": (replace(NEW, page_ids=(32,), num_computed=16),)}, r"outside 0\.\.31"),
        ({"new": (replace(NEW, page_ids=(0,), num_computed=17),)}, "pages for 16; the plan counts 17 as computed"),
        ({"new": (replace(NEW, num_computed=-1),)}, "counts -1 as computed"),
    ],
)
def test_a_plan_that_contradicts_the_mirror_is_refused(group: RankGroup, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(RankDisagreement, match=named):
        group.execute(**changes)


def test_uneven_heads_give_uneven_pages(pair: RankGroup) -> None:
    one_kv_head = 2 * 2 * 16 * 16 * 4  # layers, K and V, slots, head size, bytes
    assert [rank.page_bytes for rank in pair.ranks] == [2 * one_kv_head, one_kv_head]


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"max_model_len": 1025}, DoesNotFit, "1025 exceeds the model's 1024 positions"),
        ({"world_size": 10}, CannotPartition, "10 is not between 1 and 9"),
        ({"backend": "tpu"}, BackendUnavailable, "'tpu' is unknown; choose one of numba, sdpa, flash"),
        ({"dtype": "int8"}, BackendUnavailable, "dtype 'int8'"),
        ({"page_size": 24}, BackendUnavailable, "page size 24"),
        ({"backend": "numba", "device": "cuda"}, BackendUnavailable, "'numba' runs on the CPU"),
        ({"backend": "flash", "device": "cpu"}, BackendUnavailable, "'flash' runs on a CUDA device"),
        ({"backend": "flash", "device": "cuda", "page_size": 16}, BackendUnavailable, "multiple of 256, not 16"),
        (
            {"backend": "flash", "device": "cuda", "page_size": 256, "kv_dtype": "bfloat16"},
            BackendUnavailable,
            r"pip install 'parkade\[flash\]'",
        ),
    ],
)
def test_a_rank_that_cannot_run_says_why(
    folder: Path, changes: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named), running(make_spec(folder, **changes)):
        pass


def test_loading_reports_progress(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    with running(make_spec(folder)) as group:
        Rank(
            group.spec, group.collectives[0], lambda done: None, lambda done, total: seen.append((done, total))
        ).close()
    assert seen[-1][0] == seen[-1][1] == len(seen) == 21
