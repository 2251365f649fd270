"""Pages dropped, tokens kept: when that is done instead of a copy, what is computed again, how it is told and counted.

Traps 10 and 14 of the accounting: a budget is permission, not allocation; a replay is no prompt.
"""

import pytest

from scheduler.messages import (
    Deferred,
    Finished,
    FinishReason,
    Notice,
    Parked,
    ParkFailed,
    ParkMode,
    ParkReason,
    Restored,
)
from scheduler.plan import CopyIn, CopyOut, CopyOutcome, PageReset
from tests.fakes import solo_run
from tests.scheduler.engine.rig import Rig, submission


def chunks_of(rig: Rig, seq_id: int) -> list[tuple[int, int, bool]]:
    chunks = [chunk for plan in rig.ranks.plans for chunk in plan.chunks if chunk.seq_id == seq_id]
    return [(chunk.start, chunk.num_tokens, chunk.sample) for chunk in chunks]


def test_without_arena_room_the_pages_are_dropped_and_the_tokens_computed_again() -> None:
    rig = Rig(arena=1, recompute=True, inflight=1)
    rig.admit("a", prompt=6, max_tokens=9)
    for _ in range(3):
        rig.turn()
    rig.park("a")
    assert rig.plan() is None and rig.free == (16, 1), "nothing is in flight, so nothing is waited for"
    (parked,) = rig.of(Parked)
    assert (parked.mode, parked.reason, parked.num_pages) == (ParkMode.RECOMPUTE, ParkReason.PRESSURE, 0)
    rig.restore("a")
    plan = rig.plan()
    assert plan is not None
    assert plan.resets == (PageReset(seq_id=0, page_ids=(), num_computed=0),)
    assert [(chunk.start, chunk.num_tokens, chunk.sample) for chunk in plan.chunks] == [(0, 9, True)]
    (restored,) = rig.of(Restored)
    assert (restored.mode, restored.reason) == (ParkMode.RECOMPUTE, "")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a") and rig.finish("a") is FinishReason.LENGTH
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED, Notice.RECOMPUTED]
    assert [(one.parks, one.recomputes) for one in rig.said["a"] if one.notice] == [(1, 0), (1, 1), (1, 1)]
    assert (rig.said["a"][-1].parks, rig.said["a"][-1].recomputes) == (1, 1)


def test_positions_computed_again_are_counted_apart_and_never_as_prompt_tokens() -> None:
    rig = Rig(arena=0, recompute=True, step_tokens=8)
    rig.admit("a", prompt=19, max_tokens=9)
    for _ in range(6):
        rig.turn()
    rig.park("a")
    rig.settle()
    computed = sum(plan.num_tokens for plan in rig.ranks.plans)
    rig.restore("a")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a")
    counters = rig.core.counters
    assert (counters.prompt_tokens, counters.generated_tokens, counters.recomputed_tokens) == (19, 9, computed)
    assert (counters.steps, counters.copies) == (len(rig.ranks.plans), 0)
    assert len(counters.take_step_seconds()) == counters.steps and counters.take_step_seconds() == []


@pytest.mark.parametrize("inflight", [1, 2])
@pytest.mark.parametrize("turns", range(12))
def test_a_drop_at_any_step_neither_loses_nor_doubles_a_token(turns: int, inflight: int) -> None:
    rig = Rig(inflight=inflight, step_tokens=8, arena=0, recompute=True)
    rig.admit("a", prompt=19, max_tokens=9)
    for _ in range(turns):
        rig.turn()
    rig.park("a")
    rig.settle()
    if not rig.of(Finished):
        assert rig.free[0] == 16 and len(rig.of(Parked)) == 1
        rig.restore("a")
        rig.settle()
    assert rig.tokens("a") == rig.solo("a") and rig.finish("a") is FinishReason.LENGTH
    assert rig.core.counters.prompt_tokens == 19
    assert rig.free == (16, 0) and rig.core.is_idle


def test_dropped_pages_go_to_nobody_while_a_plan_in_flight_names_the_sequence() -> None:
    rig = Rig(pages=4, arena=0, recompute=True, inflight=2, page_size=4)
    rig.admit("a", prompt=7, max_tokens=20)
    rig.plan_all()
    rig.park("a")
    rig.plan_all()
    assert rig.free == (2, 0) and rig.of(Parked) == []
    rig.answer()
    assert rig.free == (2, 0) and rig.of(Parked) == []
    rig.answer()
    assert rig.free == (4, 0) and len(rig.of(Parked)) == 1
    assert rig.tokens("a") == rig.solo("a", 2), "what the plans owed was applied first"


def test_a_restore_ordered_while_the_drop_waits_is_carried_out_after_it() -> None:
    rig = Rig(arena=0, recompute=True)
    rig.admit("a", max_tokens=9)
    rig.turn()
    rig.plan_all()
    rig.park("a")
    rig.restore("a")
    rig.settle()
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED, Notice.RECOMPUTED]
    assert rig.tokens("a") == rig.solo("a")


def test_a_stop_token_that_the_drop_waited_for_ends_the_stream_once() -> None:
    rig = Rig(arena=0, recompute=True)
    stop = solo_run(submission("a").prompt_tokens, 0, 1000, 4)[3]
    rig.admit("a", max_tokens=9, stop_ids=(stop,))
    for _ in range(2):
        rig.turn()
    rig.plan_all()
    rig.park("a")
    rig.settle()
    assert rig.finish("a") is FinishReason.STOP and rig.tokens("a") == rig.solo("a")
    assert rig.of(Parked) == [] and len(rig.of(Finished)) == 1 and rig.notices("a") == []
    assert rig.free == (16, 0) and rig.core.is_idle


def test_a_copy_out_that_fails_is_a_drop_at_once() -> None:
    rig = Rig(recompute=True, inflight=1, outcome_of=lambda order: CopyOutcome.FAILED)
    rig.admit("a", prompt=6, max_tokens=9)
    rig.turn()
    rig.park("a", ParkReason.SEAT)
    rig.settle()
    (parked,) = rig.of(Parked)
    assert (parked.mode, parked.reason, parked.num_pages) == (ParkMode.RECOMPUTE, ParkReason.SEAT, 0)
    assert rig.free == (16, 64) and rig.of(ParkFailed) == [] and rig.core.counters.failed_copies == 1
    rig.restore("a")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a") and rig.ranks.used_slots == set()
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED, Notice.RECOMPUTED]


@pytest.mark.parametrize("outcome", [CopyOutcome.FAILED, CopyOutcome.CORRUPT])
def test_what_cannot_be_copied_back_runs_at_once_and_is_computed_again(outcome: CopyOutcome) -> None:
    def outcome_of(order: CopyOut | CopyIn) -> CopyOutcome:
        return outcome if isinstance(order, CopyIn) else CopyOutcome.DONE

    rig = Rig(recompute=True, outcome_of=outcome_of)
    rig.admit("a", prompt=6, max_tokens=9)
    rig.turn()
    rig.park("a")
    rig.settle()
    assert rig.of(Parked)[0].mode is ParkMode.COPY
    rig.restore("a")
    rig.settle()
    (restored,) = rig.of(Restored)
    assert (restored.mode, restored.reason) == (ParkMode.RECOMPUTE, f"the copy is {outcome.value}")
    assert rig.notices("a") == [Notice.PARKED, Notice.RESUMED, Notice.RECOMPUTED]
    assert rig.tokens("a") == rig.solo("a") and rig.core.is_idle
    counters = rig.core.counters
    assert (counters.copies, counters.failed_copies + counters.corrupt_copies) == (1, 1)
    assert rig.free == (16, 64) and rig.ranks.used_slots == set()


def test_a_sequence_parked_again_in_the_middle_of_its_replay_keeps_what_it_has() -> None:
    rig = Rig(arena=3, recompute=True, step_tokens=8, inflight=1)
    rig.admit("a", prompt=19, max_tokens=9)
    for _ in range(5):
        rig.turn()
    rig.park("a")
    rig.settle()
    rig.restore("a")
    rig.turn()
    rig.park("a")
    rig.settle()
    assert [(event.mode, event.num_pages) for event in rig.of(Parked)] == [
        (ParkMode.RECOMPUTE, 0),
        (ParkMode.COPY, 2),
    ]
    rig.restore("a")
    rig.settle()
    assert [event.mode for event in rig.of(Restored)] == [ParkMode.RECOMPUTE, ParkMode.COPY]
    assert rig.tokens("a") == rig.solo("a") and rig.core.counters.prompt_tokens == 19
    again = [start for start, _, _ in chunks_of(rig, 0)]
    assert again.count(0) == 2 and again.count(8) == 2, "only what was dropped is computed twice"


def test_a_sequence_unknown_to_the_ranks_moves_without_a_copy_and_loses_nothing() -> None:
    rig = Rig(arena=0, recompute=True, step_tokens=8)
    rig.admit("a", prompt=8)
    rig.admit("b", prompt=8, max_tokens=3)
    rig.plan()
    rig.park("b")
    rig.plan_all()
    assert [(event.mode, event.num_pages) for event in rig.of(Parked, "b")] == [(ParkMode.COPY, 0)]
    rig.restore("b")
    rig.settle()
    assert rig.notices("b") == [Notice.PARKED, Notice.RESUMED] and rig.core.counters.recomputed_tokens == 0
    assert all(rig.tokens(name) == rig.solo(name) for name in "ab")


@pytest.mark.parametrize("pages", [10, 11])
def test_what_comes_back_to_be_computed_again_needs_the_room_of_all_its_tokens(pages: int) -> None:
    rig = Rig(pages=pages, page_size=4, arena=0, recompute=True, lookahead=4, inflight=1)
    rig.admit("a", prompt=20, max_tokens=20)
    rig.turn()
    rig.park("a")
    rig.settle()
    rig.admit("b", prompt=15, max_tokens=2)  # claims 4 pages, and a the 6 of its 21 tokens and the margin
    rig.turn()
    rig.restore("a")
    rig.plan()
    assert len(rig.of(Restored)) == (pages == 11)
    assert len(rig.of(Deferred)) == (pages == 10)
