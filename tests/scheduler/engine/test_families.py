"""Several choices of one prompt: computed once, then each alone; out and back as one; each choice as its solo run.

Trap 6 of the accounting: the shared prompt is charged once, the waiting choices are charged from the start.
"""

import pytest

from scheduler.messages import (
    Deferred,
    Finished,
    FinishReason,
    Notice,
    Parked,
    ParkMode,
    Pressure,
    Restored,
)
from scheduler.plan import CopyIn, CopyOut, CopyOutcome, NewSequence, PageReset
from scheduler.sampling import SamplingParams
from tests.fakes import solo_run
from tests.scheduler.engine.rig import Rig, submission


def check_streams(rig: Rig, request_id: str, num_tokens: int | None = None) -> None:
    """Every choice has said what it would say alone, and has ended."""
    for choice in range(rig.submissions[request_id].n):
        assert rig.tokens(request_id, choice) == rig.solo(request_id, num_tokens, choice), f"choice {choice}"
        assert rig.finish(request_id, choice) in (FinishReason.LENGTH, FinishReason.STOP)
    assert len(rig.of(Finished, request_id)) == 1


def chunks(rig: Rig) -> list[list[tuple[int, int, int]]]:
    return [[(one.seq_id, one.start, one.num_tokens) for one in plan.chunks] for plan in rig.ranks.plans]


@pytest.mark.parametrize("inflight", [1, 2])
def test_the_prompt_is_computed_once_and_each_choice_computes_its_last_page(inflight: int) -> None:
    rig = Rig(inflight=inflight)
    sub = rig.admit("a", prompt=10, max_tokens=3, n=3, seed=2**63 - 2)
    rig.settle()
    assert chunks(rig)[:2] == [[(0, 0, 10)], [(0, 10, 1), (1, 8, 2), (2, 8, 2)]]
    assert rig.ranks.plans[1].new == tuple(
        NewSequence(
            seq_id=choice,
            tokens=sub.prompt_tokens,
            num_prompt_tokens=10,
            sampling=SamplingParams(seed=seed),
            page_ids=(0, 1),
            num_computed=8,
        )
        for choice, seed in ((1, 2**63 - 1), (2, -(2**63)))
    )
    check_streams(rig, "a")
    assert (rig.core.counters.prompt_tokens, rig.core.counters.generated_tokens) == (10, 9)
    assert rig.core.is_idle and rig.free == (16, 64) and rig.ranks.mirrors == {}


@pytest.mark.parametrize("prompt", [1, 4])
def test_a_prompt_without_a_full_page_to_share_is_computed_by_each_choice(prompt: int) -> None:
    rig = Rig()
    rig.admit("a", prompt=prompt, max_tokens=6, n=2)
    rig.settle()
    assert chunks(rig)[0] == [(0, 0, prompt), (1, 0, prompt)]
    assert all(new.page_ids == () for new in rig.ranks.plans[0].new)
    check_streams(rig, "a")


def test_choices_wait_for_a_prompt_of_several_chunks_with_their_seats_and_claims() -> None:
    rig = Rig(running=4, step_tokens=4, pages=14, page_size=4, inflight=1)
    rig.admit("a", prompt=13, max_tokens=6, n=3)  # 3 pages shared, and 2 with the margin for each choice
    rig.admit("b", prompt=1, max_tokens=6)
    rig.admit("c", prompt=1, max_tokens=6)
    rig.turn()
    assert [event.request_id for event in rig.of(Deferred)] == ["c"], "four seats are taken"
    load = rig.core.account().residents[0]
    assert (load.request_id, load.seats, load.num_tokens, load.pages_to_hold) == ("a", 3, 13, 6)
    assert load.num_pages == 1
    while rig.core.account().residents[0].num_pages < 6:
        assert not any(new.seq_id in (1, 2) for new in rig.ranks.plans[-1].new), "nobody begins before the prompt is"
        rig.turn()
    assert [new.seq_id for new in rig.ranks.plans[-1].new] == [1, 2]
    rig.settle()
    check_streams(rig, "a")
    assert rig.tokens("b") == rig.solo("b")


def test_a_family_needs_a_seat_for_every_choice() -> None:
    rig = Rig(running=4)
    rig.admit("a", n=2)
    rig.admit("b", n=3)
    rig.plan()
    assert [event.request_id for event in rig.of(Deferred)] == ["b"]


def test_a_choice_that_ends_gives_its_own_pages_and_its_seat_back_at_once() -> None:
    rig = Rig(running=3, inflight=1)
    stop = solo_run(submission("c", prompt=9).prompt_tokens, 0, 1000, 3)[2]
    rig.admit("c", prompt=9, max_tokens=12, n=3, stop_ids=(stop,))
    for _ in range(4):
        rig.turn()
    assert rig.finish("c", 0) is FinishReason.STOP and rig.finish("c", 1) is None
    load = rig.core.account().residents[0]
    assert (load.seats, load.num_pages, load.num_tokens) == (2, 4, 9 + 2 + 3 + 3)
    rig.admit("d", max_tokens=2)
    rig.settle()
    check_streams(rig, "c")
    check_streams(rig, "d")
    assert rig.of(Deferred) == [] and rig.of(Finished, "c")[0].reason is FinishReason.LENGTH


def test_the_first_choice_may_end_with_the_prompt_and_the_others_begin_with_its_pages() -> None:
    rig = Rig(inflight=1)
    rig.admit("a", prompt=9, max_tokens=1, n=3)
    rig.settle()
    check_streams(rig, "a")
    assert rig.ranks.plans[1].finished == (0,)
    assert [new.page_ids for new in rig.ranks.plans[1].new] == [(0, 1), (0, 1)]
    assert rig.core.is_idle and rig.free == (16, 64)


def test_a_family_is_copied_out_and_in_as_one_with_the_shared_pages_once() -> None:
    rig = Rig(inflight=1)
    rig.admit("a", prompt=10, max_tokens=12, n=2)
    for _ in range(3):
        rig.turn()
    rig.park("a")
    plan = rig.plan()
    assert plan is not None
    assert plan.copies_out == (CopyOut(copy_id=0, page_ids=(0, 1, 2, 3), arena_ids=(0, 1, 2, 3)),)
    rig.settle()
    assert [(event.num_pages, event.mode) for event in rig.of(Parked)] == [(4, ParkMode.COPY)]
    assert rig.free == (16, 60)
    rig.restore("a")
    plan = rig.plan()
    assert plan is not None
    assert plan.copies_in == (CopyIn(copy_id=1, arena_ids=(0, 1, 2, 3), page_ids=(0, 1, 2, 3)),)
    rig.turn()
    plan = rig.plan()
    assert plan is not None
    assert plan.resets == (
        PageReset(seq_id=0, page_ids=(0, 1, 2), num_computed=12),
        PageReset(seq_id=1, page_ids=(0, 1, 3), num_computed=11),
    )
    rig.settle()
    check_streams(rig, "a")
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED], "one notice for all choices"
    assert rig.core.is_idle and rig.free == (16, 64) and rig.ranks.used_slots == set()


@pytest.mark.parametrize("inflight", [1, 2])
@pytest.mark.parametrize("arena", [0, 64])
@pytest.mark.parametrize("turns", range(1, 11))
def test_a_family_parked_at_any_step_says_what_each_choice_would_say_alone(
    turns: int, arena: int, inflight: int
) -> None:
    rig = Rig(inflight=inflight, step_tokens=8, arena=arena, recompute=True)
    rig.admit("a", prompt=14, max_tokens=6, n=3)
    for _ in range(turns):
        rig.turn()
    rig.park("a")
    rig.settle()
    if not rig.of(Finished):
        assert rig.free[0] == 16 and len(rig.of(Parked)) == 1
        rig.restore("a")
        rig.settle()
    check_streams(rig, "a")
    assert rig.core.counters.prompt_tokens == 14 and rig.core.is_idle and rig.free == (16, arena)


def test_a_dropped_family_computes_its_prompt_once_again_though_the_first_choice_has_ended() -> None:
    rig = Rig(arena=0, recompute=True, inflight=1)
    stop = solo_run(submission("a", prompt=10).prompt_tokens, 0, 1000, 2)[1]
    rig.admit("a", prompt=10, max_tokens=12, n=3, stop_ids=(stop,))
    for _ in range(4):
        rig.turn()
    assert rig.finish("a", 0) is FinishReason.STOP and rig.finish("a", 1) is None
    rig.park("a")
    rig.settle()
    assert rig.free == (16, 0)
    rig.restore("a")
    plan = rig.plan()
    assert plan is not None
    num_known = 10 + len(rig.tokens("a", 1))
    assert [(chunk.seq_id, chunk.start, chunk.num_tokens) for chunk in plan.chunks] == [(1, 0, num_known)]
    rig.answer()
    plan = rig.plan()
    assert plan is not None
    assert [(chunk.seq_id, chunk.start) for chunk in plan.chunks] == [(1, num_known), (2, 8)]
    assert plan.resets == (PageReset(seq_id=2, page_ids=(0, 1), num_computed=8),)
    rig.settle()
    check_streams(rig, "a")
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED, Notice.RECOMPUTED]
    assert rig.core.counters.prompt_tokens == 10


@pytest.mark.parametrize("answered", [False, True])
def test_a_choice_that_ends_while_its_family_is_copied_out_is_not_brought_back(answered: bool) -> None:
    rig = Rig(hold_copies=True, inflight=2)
    stop = solo_run(submission("a", prompt=10).prompt_tokens, 1, 1000, 3)[2]
    rig.admit("a", prompt=10, max_tokens=12, n=2, stop_ids=(stop,))
    while len(rig.tokens("a", 1)) < 2:
        rig.turn()
    rig.plan_all()
    rig.park("a")
    if answered:
        rig.answer()
    rig.plan_all()
    while rig.ranks.num_unanswered:
        rig.answer()
    rig.plan_all()
    assert rig.finish("a", 1) is FinishReason.STOP and rig.finish("a", 0) is None
    held = rig.free
    rig.land()
    (parked,) = rig.of(Parked)
    assert parked.num_pages == 64 - rig.free[1] and rig.free[0] == 16 and rig.free[1] >= held[1]
    rig.hold_copies = False
    rig.restore("a")
    rig.settle()
    check_streams(rig, "a")
    assert rig.core.is_idle and rig.ranks.used_slots == set()


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("turns", range(6))
def test_a_cancel_ends_every_choice_that_lives_and_gives_everything_back(turns: int, hold: bool) -> None:
    rig = Rig(step_tokens=8, hold_copies=hold)
    rig.admit("a", prompt=14, max_tokens=50, n=3)
    for _ in range(turns):
        rig.turn()
    if hold:
        rig.park("a")
        rig.plan_all()
    rig.cancel("a")
    rig.settle()
    assert [rig.finish("a", choice) for choice in range(3)] == [FinishReason.CANCELLED] * 3
    rig.hold_copies = False
    rig.settle()
    assert [event.reason for event in rig.of(Finished)] == [FinishReason.CANCELLED]
    assert rig.core.is_idle and rig.free == (16, 64) and rig.ranks.mirrors == {}


def test_a_restore_that_comes_back_corrupt_is_computed_again_by_all_choices() -> None:
    outcome = [CopyOutcome.DONE]
    rig = Rig(recompute=True, outcome_of=lambda order: outcome[0])
    rig.admit("a", prompt=10, max_tokens=12, n=3)
    for _ in range(5):
        rig.turn()
    rig.park("a")
    rig.settle()
    outcome[0] = CopyOutcome.CORRUPT
    rig.restore("a")
    rig.settle()
    check_streams(rig, "a")
    assert rig.of(Restored)[0].mode is ParkMode.RECOMPUTE and rig.ranks.used_slots == set()


def test_alone_each_choice_may_fill_its_even_part_of_the_pool() -> None:
    rig = Rig(pages=9, page_size=4, step_tokens=16)
    rig.admit("a", prompt=9, max_tokens=100, n=3)  # 2 shared pages, and 7 // 3 for each
    rig.settle()
    check_streams(rig, "a", 16 + 1 - 9)
    assert rig.of(Pressure) == []


@pytest.mark.parametrize(
    ("n", "prompt", "error"),
    [
        (5, 4, "n is 5; at least 1 and at most 4 choices can run at once"),
        (
            4,
            22,
            "4 choices of a prompt of 22 tokens need 9 pages of 4 tokens; the KV pool has 8: ask for fewer choices",
        ),
    ],
)
def test_a_family_that_never_fits_is_told_both_numbers_for_every_choice(n: int, prompt: int, error: str) -> None:
    rig = Rig(pages=8, page_size=4, running=4)
    rig.admit("a", prompt=prompt, n=n)
    rig.settle()
    assert [(one.choice, one.finish, one.error) for one in rig.said["a"]] == [
        (choice, FinishReason.ERROR, error) for choice in range(n)
    ]
    assert [(event.reason, event.error) for event in rig.of(Finished)] == [(FinishReason.ERROR, error)]


def test_a_family_whose_only_page_holder_ends_before_the_copy_is_sent_parks_with_nothing_to_copy() -> None:
    rig = Rig(step_tokens=4, running=4, inflight=1)
    stop = solo_run(submission("a", prompt=4).prompt_tokens, 0, 1000, 1)[0]
    rig.admit("a", prompt=4, max_tokens=6, n=2, stop_ids=(stop,))
    rig.plan()
    rig.park("a")
    assert rig.plan() is None
    rig.answer()
    rig.settle()
    assert rig.finish("a", 0) is FinishReason.STOP
    assert [(event.num_pages, event.mode) for event in rig.of(Parked)] == [(0, ParkMode.COPY)]
    assert rig.free == (16, 64) and not any(plan.copies_out for plan in rig.ranks.plans)
    rig.restore("a")
    rig.settle()
    check_streams(rig, "a")
