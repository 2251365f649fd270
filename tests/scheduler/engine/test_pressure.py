"""A pool that runs short: what is asked, how often, and who ends when nobody can help."""

import pytest

from scheduler.messages import Finished, FinishReason, Parked, ParkFailed, ParkMode, ParkReason, Pressure
from scheduler.plan import CopyOutcome
from tests.scheduler.engine.rig import Rig


def crowded(*, inflight: int = 1, arena: int = 64, park: bool = True, recompute: bool = False) -> Rig:
    """Two streams of 5 pages each in the end, in a pool of 8 pages of 4."""
    rig = Rig(pages=8, page_size=4, lookahead=4, inflight=inflight, arena=arena, park=park, recompute=recompute)
    rig.admit("a", prompt=4, max_tokens=17)
    rig.admit("b", prompt=4, max_tokens=17)
    return rig


def test_the_scan_asks_for_exactly_what_is_missing_before_it_is() -> None:
    rig = crowded()
    asked = rig.until(Pressure)
    # Each has 9 positions scheduled: 4 pages within 4 steps and the margin make 10 pages claimed of 8.
    assert asked.shortfall == 2 and asked.load.pages_free == 2
    assert [one.num_pages for one in asked.load.residents] == [3, 3]


def test_a_family_claims_what_it_shares_once_and_each_choice_the_rest() -> None:
    rig = Rig(pages=16, page_size=4, lookahead=4, inflight=1)
    rig.admit("a", prompt=13, max_tokens=12, n=3)
    rig.admit("b", prompt=5, max_tokens=30)
    asked = rig.until(Pressure)
    (a, b) = asked.load.residents
    assert (a.num_tokens, a.seats, a.pages_to_hold, b.num_tokens) == (13 + 4 + 3 + 3, 3, 7, 9)
    # Each of a's choices wants 6 pages, its most: 3 of its own. b, with 9 scheduled, wants 4 and the margin.
    assert asked.shortfall == 3 + 3 * 3 + 5 - 16


def test_a_margin_that_will_never_be_used_is_not_claimed() -> None:
    rig = Rig(pages=8, page_size=4, lookahead=4)
    rig.admit("a", prompt=4, max_tokens=13)  # 4 pages at its end
    rig.admit("b", prompt=4, max_tokens=13)
    rig.settle()
    assert rig.of(Pressure) == []


def test_pressure_is_asked_once_and_again_only_after_a_while() -> None:
    rig = Rig(pages=40, page_size=64, lookahead=65, inflight=1, model_len=5000)
    rig.admit("a", prompt=64 * 20, max_tokens=3000)
    rig.admit("b", prompt=64 * 13, max_tokens=3000)
    rig.until(Pressure, turns=600)
    step = rig.ranks.next_step
    for _ in range(60):
        rig.turn()
    asked = rig.of(Pressure)
    assert [event.shortfall for event in asked][:1] == [asked[0].shortfall]
    worse = [event for event in asked[1:] if event.shortfall > asked[0].shortfall]
    assert len(asked) - len(worse) <= 1 + (rig.ranks.next_step - step) // 32


def test_an_answered_pressure_is_not_asked_again() -> None:
    rig = crowded()
    rig.until(Pressure)
    rig.park("b")
    rig.until(Parked, "b")
    assert len(rig.of(Pressure)) == 1
    rig.settle()
    assert len(rig.of(Pressure)) == 1 and rig.tokens("a") == rig.solo("a")


def test_pages_on_their_way_out_count_as_gone() -> None:
    rig = crowded(inflight=2)
    rig.until(Pressure)
    rig.plan_all()
    rig.park("b")
    rig.plan_all()
    assert rig.of(Parked) == [] and len(rig.of(Pressure)) == 1


def test_a_last_resident_is_under_no_pressure() -> None:
    rig = Rig(pages=4, page_size=4)
    rig.admit("a", prompt=4, max_tokens=100)
    rig.settle()
    assert rig.of(Pressure) == [] and rig.finish("a") is FinishReason.LENGTH


@pytest.mark.parametrize("inflight", [1, 2])
def test_who_finds_no_page_waits_while_others_run(inflight: int) -> None:
    rig = Rig(pages=8, page_size=4, lookahead=4, inflight=inflight)
    rig.admit("a", prompt=11, max_tokens=6)  # 4 pages at its end, reached in the step in which b wants a fifth
    rig.admit("b", prompt=12, max_tokens=16)
    rig.settle()
    assert [chunk.seq_id for chunk in rig.ranks.plans[5].chunks] == [0]
    assert all(rig.tokens(name) == rig.solo(name) for name in "ab") and rig.of(Parked) == []


@pytest.mark.parametrize("arena", [0, 64])
def test_a_total_stall_with_recompute_parks_the_newest_after_ten_seconds_and_nobody_ends(arena: int) -> None:
    rig = crowded(arena=arena, recompute=True)
    rig.settle()
    assert rig.core.wake_at is not None and rig.core.num_inflight == 0 and rig.of(Parked) == []
    rig.now += 9.0
    assert rig.plan() is None and rig.of(Parked) == []
    rig.now += 1.1
    rig.settle()
    (parked,) = rig.of(Parked)
    assert (parked.request_id, parked.mode, parked.reason) == ("b", ParkMode.RECOMPUTE, ParkReason.PRESSURE)
    assert rig.tokens("a") == rig.solo("a") and rig.finish("b") is None and rig.core.wake_at is None
    rig.restore("b")
    rig.settle()
    assert rig.tokens("b") == rig.solo("b") and rig.core.is_idle


def test_with_recompute_a_full_arena_ends_nobody() -> None:
    rig = crowded(arena=3, recompute=True)
    rig.until(Pressure)
    rig.park("b")
    rig.until(Parked, "b")
    rig.settle()
    rig.restore("b")
    rig.settle()
    assert rig.of(Parked)[0].mode is ParkMode.COPY and rig.of(ParkFailed) == []
    assert all(rig.tokens(name) == rig.solo(name) for name in "ab")


def test_probes_during_a_stall_do_not_reset_its_clock() -> None:
    rig = crowded(recompute=True)
    rig.settle()
    for _ in range(4):
        rig.now += 3.0
        rig.ranks.begin(rig.core.plan_probe())
        rig.plan()
        rig.answer()
        rig.plan()
    assert [event.request_id for event in rig.of(Parked)] == ["b"]


def test_a_total_stall_asks_again_every_second_and_ends_the_newest_after_ten() -> None:
    rig = crowded()
    rig.settle()
    assert rig.core.wake_at is not None and rig.core.num_inflight == 0
    asked = len(rig.of(Pressure))
    stalled_at = rig.now
    for second in range(1, 10):
        assert rig.core.wake_at == pytest.approx(stalled_at + second, abs=0.3)
        rig.now = rig.core.wake_at
        assert rig.plan() is None
        assert len(rig.of(Pressure)) == asked + second
    assert rig.finish("b") is None
    rig.now = stalled_at + 10.1
    rig.settle()
    error = (
        "the KV pool of 32 tokens is full: this request holds 4 of its 8 pages and needs another, "
        "and no request was parked within 10 s"
    )
    assert (rig.finish("b"), rig.said["b"][-1].error) == (FinishReason.ERROR, error)
    assert rig.tokens("a") == rig.solo("a") and rig.core.is_idle and rig.core.wake_at is None


def test_a_stall_is_over_as_soon_as_one_is_parked() -> None:
    rig = crowded()
    rig.settle()
    rig.park("b")
    rig.settle()
    assert rig.tokens("a") == rig.solo("a") and rig.core.wake_at is None
    rig.restore("b")
    rig.settle()
    assert all(rig.tokens(name) == rig.solo(name) for name in "ab")


def test_a_stall_that_ends_because_all_are_cancelled_leaves_no_clock_behind() -> None:
    rig = crowded()
    rig.settle()
    assert rig.core.wake_at is not None
    rig.cancel("a")
    rig.cancel("b")
    rig.settle()
    assert rig.core.is_idle and rig.core.wake_at is None


def test_with_no_arena_for_anybody_the_newest_ends_at_once_with_both_budgets() -> None:
    rig = crowded(arena=3)
    rig.settle()
    error = (
        "the KV pool of 32 tokens is full: this request holds 4 of its 8 pages and needs another, "
        "and the host RAM budget of 3 pages is full (3 are free)"
    )
    assert (rig.finish("b"), rig.said["b"][-1].error) == (FinishReason.ERROR, error)
    assert [(event.reason, event.error) for event in rig.of(Finished, "b")] == [(FinishReason.ERROR, error)]
    assert rig.tokens("a") == rig.solo("a") and rig.finish("a") is FinishReason.LENGTH


def test_when_every_copy_fails_the_newest_ends() -> None:
    rig = Rig(pages=8, page_size=4, lookahead=4, outcome_of=lambda order: CopyOutcome.FAILED)
    rig.admit("a", prompt=4, max_tokens=17)
    rig.admit("b", prompt=4, max_tokens=17)
    rig.settle()
    for name in "ab":
        rig.park(name)
        rig.settle()
    assert [event.request_id for event in rig.of(ParkFailed)] == ["a", "b"]
    assert rig.said["b"][-1].error is not None and rig.said["b"][-1].error.endswith("and copies to host RAM fail")
    assert rig.tokens("a") == rig.solo("a")


@pytest.mark.parametrize("inflight", [1, 2])
def test_with_parking_off_only_the_one_that_finds_no_page_fails_and_at_once(inflight: int) -> None:
    rig = Rig(pages=8, page_size=4, lookahead=4, inflight=inflight, park=False)
    rig.admit("a", prompt=3, max_tokens=20)
    rig.admit("b", prompt=4, max_tokens=20)
    rig.settle()
    error = (
        "the KV pool of 32 tokens is full: this request holds 4 of its 8 pages and needs another, and parking is off"
    )
    assert (rig.finish("b"), rig.said["b"][-1].error) == (FinishReason.ERROR, error)
    assert rig.tokens("b") == rig.solo("b", len(rig.tokens("b")))
    assert rig.tokens("a") == rig.solo("a") and rig.of(Pressure) == []


def test_with_parking_off_pages_that_are_about_to_be_free_are_waited_for() -> None:
    rig = Rig(pages=9, page_size=4, lookahead=4, inflight=2, park=False)
    for name in "abc":
        rig.admit(name, prompt=3, max_tokens=12)  # 4 pages each at its end
    rig.settle()
    failed = [name for name in "abc" if rig.finish(name) is FinishReason.ERROR]
    assert failed == ["a"], "it was the first to cross a border; what it gave back is enough for the others"
    for name in "bc":
        assert rig.tokens(name) == rig.solo(name)


@pytest.mark.parametrize("inflight", [1, 2])
def test_under_pressure_a_prompt_leaves_decoding_streams_the_pages_to_end_with(inflight: int) -> None:
    rig = Rig(pages=34, page_size=4, inflight=inflight, step_tokens=8, lookahead=4)
    rig.admit("a", prompt=4, max_tokens=24)  # 7 pages at its end
    rig.admit("b", prompt=120, max_tokens=3)  # 31 pages at its end
    rig.settle()
    assert rig.of(Pressure) != [] and rig.of(Parked) == []
    chunks = {chunk.num_tokens for plan in rig.ranks.plans for chunk in plan.chunks if chunk.seq_id == 1}
    assert 0 < min(chunks - {1}) < 7, "a chunk was cut to the pages left to it"
    assert all(rig.tokens(name) == rig.solo(name) for name in "ab")


def test_with_parking_off_a_family_that_finds_no_page_ends_with_all_its_choices() -> None:
    rig = Rig(pages=8, page_size=4, park=False, inflight=1)
    rig.admit("a", prompt=5, max_tokens=12, n=2)
    rig.admit("b", prompt=4, max_tokens=12)
    rig.settle()
    ended = [name for name in "ab" if rig.finish(name) is FinishReason.ERROR]
    assert len(ended) == 1
    assert ended == ["b"] or [rig.finish("a", choice) for choice in (0, 1)] == [FinishReason.ERROR] * 2
    assert rig.core.is_idle and rig.free == (8, 64)
