"""Parks on order: as many as asked for, by copy and by recompute, and a changed stream is found."""

import pytest

from bench.exactness.bank import make_bank, submission_of
from bench.exactness.forced import Forced, parked_again_and_again, parked_beside_others
from bench.exactness.ranks import ExactRanks
from bench.shared_ranks import SharedRanks
from bench.streams import StreamError
from scheduler.engine.config import EngineConfig
from tests.fakes import FakeExecutor, FakeRanks

SIZES = Forced(run_tokens=80, every=20, beside_tokens=60, park_at=12, resume_at=40)
BANK = make_bank(size=4, prompt_tokens=(5, 9), vocab_size=1000)
LIMITS = EngineConfig(
    group_id="g",
    num_pages=200,
    arena_pages=200,
    page_size=4,
    max_running=8,
    max_step_tokens=64,
    max_model_len=200,
)


@pytest.fixture
def ranks() -> ExactRanks:
    fake = FakeRanks(num_pages=200, arena_pages=200, page_size=4)
    return ExactRanks(ranks=SharedRanks(FakeExecutor(fake)), limits=LIMITS)


@pytest.mark.parametrize(("copies", "way"), [(True, "copy"), (False, "recompute")])
async def test_a_request_is_parked_every_so_many_tokens_and_stays_what_it_is(
    ranks: ExactRanks, copies: bool, way: str
) -> None:
    outcome = await parked_again_and_again(ranks, BANK[:2], SIZES, copies=copies)
    assert outcome.differing == []
    assert (outcome.num_streams, outcome.num_tokens) == (2, 160)
    assert outcome.deeds[f"parked by {way}"] == outcome.deeds[f"restored by {way}"] == 2 * 3
    assert outcome.deeds["parked by order"] == 2 * 3


@pytest.mark.parametrize("copies", [True, False])
async def test_the_second_of_four_is_parked_once_beside_the_others(ranks: ExactRanks, copies: bool) -> None:
    outcome = await parked_beside_others(ranks, BANK, SIZES, copies=copies)
    assert (outcome.differing, outcome.num_streams, outcome.num_tokens) == ([], 4, 240)
    assert outcome.deeds["parked by order"] == 1


def test_sizes_shrink_together() -> None:
    assert Forced().scaled(0.1) == Forced(run_tokens=80, every=20, beside_tokens=100, park_at=20, resume_at=70)
    assert Forced().scaled(1.0) == Forced()


async def test_a_request_runs_alone_once_and_one_that_does_not_end_in_full_proves_nothing(ranks: ExactRanks) -> None:
    submission = submission_of(BANK[0], "r", 30)
    assert await ranks.solo(submission) is await ranks.solo(submission)
    assert len(ranks.solos) == 1
    with pytest.raises(StreamError, match="did not end in full alone"):
        await ranks.solo(submission_of(BANK[0], "r", 300))
