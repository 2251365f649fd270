"""A copy has ended when every rank says so; its outcome is the worst of theirs."""

import pytest

from scheduler.plan import CopyOutcome, CopyResult
from workers.link.agreement import RanksDisagree
from workers.link.copy_agreement import CopyAgreement
from workers.link.wire import CopyAnswer

DONE, FAILED, CORRUPT = CopyOutcome.DONE, CopyOutcome.FAILED, CopyOutcome.CORRUPT


def expecting(*copy_ids: int, world_size: int = 2) -> CopyAgreement:
    agreement = CopyAgreement(world_size)
    for copy_id in copy_ids:
        agreement.expect(copy_id)
    return agreement


def test_copies_end_in_any_order_each_with_the_longest_time_and_all_bytes() -> None:
    agreement = expecting(7, 8)
    assert agreement.add(1, CopyAnswer(8, DONE, seconds=0.5, num_bytes=10)) is None
    assert agreement.add(0, CopyAnswer(7, DONE, seconds=0.1, num_bytes=3)) is None
    assert agreement.add(0, CopyAnswer(8, DONE, seconds=0.25, num_bytes=20)) == CopyResult(
        copy_id=8, outcome=DONE, seconds=0.5, num_bytes=30
    )
    assert (agreement.num_in_flight, agreement.waits_for(7)) == (1, [1])
    assert agreement.add(1, CopyAnswer(7, DONE, seconds=0.2, num_bytes=3)) == CopyResult(
        copy_id=7, outcome=DONE, seconds=0.2, num_bytes=6
    )
    assert agreement.num_in_flight == 0


@pytest.mark.parametrize(
    ("outcomes", "worst", "reason"),
    [
        ((DONE, FAILED, FAILED), FAILED, "rank 1: of 1"),
        ((CORRUPT, DONE, DONE), CORRUPT, "rank 0: of 0"),
        ((FAILED, DONE, CORRUPT), CORRUPT, "rank 2: of 2"),
        ((DONE, DONE, DONE), DONE, ""),
    ],
)
def test_the_worst_outcome_counts_with_the_reason_of_the_first_rank_that_has_it(
    outcomes: tuple[CopyOutcome, ...], worst: CopyOutcome, reason: str
) -> None:
    agreement = expecting(1, world_size=3)
    results = [
        agreement.add(rank, CopyAnswer(1, outcomes[rank], "" if outcomes[rank] is DONE else f"of {rank}"))
        for rank in (2, 0, 1)
    ]
    assert results == [None, None, CopyResult(copy_id=1, outcome=worst, reason=reason)]


def test_an_answer_to_a_copy_nobody_ordered_or_to_one_that_has_ended_is_a_disagreement() -> None:
    agreement = expecting(1, world_size=1)
    with pytest.raises(RanksDisagree, match="rank 0 answered copy 2, which was not asked for or has ended"):
        agreement.add(0, CopyAnswer(2, DONE))
    agreement.add(0, CopyAnswer(1, DONE))
    with pytest.raises(RanksDisagree, match="rank 0 answered copy 1, which was not asked for or has ended"):
        agreement.add(0, CopyAnswer(1, DONE))


def test_a_second_answer_of_one_rank_is_a_disagreement() -> None:
    agreement = expecting(1)
    agreement.add(1, CopyAnswer(1, DONE))
    with pytest.raises(RanksDisagree, match="rank 1 answered copy 1, which it had answered already"):
        agreement.add(1, CopyAnswer(1, DONE))


def test_a_copy_ordered_twice_is_a_disagreement() -> None:
    with pytest.raises(RanksDisagree, match="copy 5 was ordered again before it had ended"):
        expecting(5, 5)
