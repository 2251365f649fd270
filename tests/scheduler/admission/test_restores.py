"""Who comes back, when, and who waits for it. Trap numbers count the bugs the design started from.

Pages are 16 tokens. With the default policy a request that is placed beside others wants pages for its tokens, for 32
tokens more, and one page of margin; so does every resident.
"""

import pytest

from scheduler.admission import AdmissionPolicy
from tests.scheduler.admission.desk import PAGE, Desk


def desk_with(tokens: dict[str, int], *, pages: int, policy: AdmissionPolicy | None = None, **priority: int) -> Desk:
    """Residents in order of arrival, grown to so many tokens."""
    desk = Desk(pages=pages, policy=policy)
    for request_id in tokens:
        assert desk.submit(request_id, priority=priority.get(request_id, 0)) == [f"admit {request_id}"]
    desk.grow(tokens)
    return desk


def park_all(desk: Desk, *request_ids: str) -> None:
    """They are parked a second apart, and the first resident left takes all the room each time."""
    side = desk.sides["g1"]
    taker = next(request_id for request_id in side.residents if request_id not in request_ids)
    for request_id in request_ids:
        others = sum(side.pages(other) for other in side.residents if other not in (taker, request_id))
        side.residents[taker] = (side.capacity.num_pages - others) * PAGE
        desk.now += 1.0
        assert desk.parked(request_id) == []


def test_what_is_parked_comes_back_when_there_is_room() -> None:
    desk = desk_with({"long": 480, "short": 320}, pages=53)
    park_all(desk, "short")
    assert desk.state("short") == "parked"
    assert desk.finished("long") == ["restore short"]
    assert desk.state("short") == "restoring"
    assert desk.restored("short") == []
    assert desk.state("short") == "resident"
    assert desk.row("short").parks == 1


def test_the_candidate_s_own_runway_and_margin_are_part_of_the_fit() -> None:
    """Trap 8: without them it is restored and parked again a few steps later."""
    desk = desk_with({"long": 480, "short": 160}, pages=46)
    park_all(desk, "short")
    # The long one holds 30 pages and wants 3, the short one needs 10 and wants 3: 46 in all.
    assert desk.grow({"long": 481}) == []
    assert desk.grow({"long": 480}) == ["restore short"]


@pytest.mark.parametrize(("pages", "restored"), [(58, ["restore c", "restore b"]), (57, ["restore c"])])
def test_one_on_its_way_back_counts_with_its_runway(pages: int, restored: list[str]) -> None:
    """Trap 8: omitting those being restored from the margin does the same."""
    desk = desk_with({"long": 160, "b": 160, "c": 160}, pages=pages)
    park_all(desk, "c", "b")
    assert desk.grow({"long": 29 * PAGE}) == restored  # 29 + 3, and 10 + 3 for each


def test_a_request_near_its_end_wants_no_more_than_its_end_needs() -> None:
    desk = Desk(pages=40)
    desk.submit("long")
    desk.submit("short", max_tokens=150)  # 166 tokens at the end, the last needs no page: 11 pages at most
    desk.grow({"long": 160, "short": 160})
    park_all(desk, "short")
    assert desk.grow({"long": 26 * PAGE + 1}) == []
    assert desk.grow({"long": 26 * PAGE}) == ["restore short"]  # 26 + 3 and 11: 40 in all


def test_the_margin_is_waived_when_nothing_is_resident() -> None:
    """Trap 3: one nearly as large as the pool would otherwise stay parked for ever."""
    desk = desk_with({"long": 16, "short": 16}, pages=53)
    desk.grow({"short": 52 * PAGE})
    park_all(desk, "short")
    assert desk.finished("long") == ["restore short"]


def test_the_higher_tier_comes_back_first() -> None:
    desk = desk_with({"best": 480, "low": 160, "high": 160}, pages=70, best=9, high=1)
    park_all(desk, "low", "high")
    assert desk.finished("best") == ["restore high", "restore low"]


def test_of_a_tier_the_one_parked_more_often_comes_back_first() -> None:
    desk = desk_with({"best": 160, "old": 160, "new": 160}, pages=60, best=9)
    park_all(desk, "new")
    assert desk.grow({"best": 160}) == ["restore new"]
    assert desk.restored("new") == []
    park_all(desk, "old", "new")
    assert desk.finished("best") == ["restore new", "restore old"]


def test_of_a_tier_and_park_count_the_one_that_has_waited_longest_comes_back_first() -> None:
    desk = desk_with({"best": 480, "a": 160, "b": 160, "c": 160}, pages=70, best=9)
    park_all(desk, "b", "a", "c")
    assert desk.finished("best") == ["restore b", "restore a", "restore c"]


def test_one_that_does_not_fit_is_passed_by_one_that_does() -> None:
    desk = desk_with({"best": 160, "big": 320, "small": 16}, pages=56, best=9)
    park_all(desk, "big", "small")
    assert desk.grow({"best": 40 * PAGE}) == ["restore small"]
    assert desk.row("big").passes == 1
    assert desk.row("small").passes == 0


def test_after_eight_passes_nobody_passes() -> None:
    """Trap 4: with no bound the big one waited for minutes while small ones came and went."""
    small = [f"small {n}" for n in range(9)]
    desk = Desk(pages=100, seats=20)
    for request_id in ("best", "big", *small):
        desk.submit(request_id, priority=9 if request_id == "best" else 0)
    desk.grow({"big": 60 * PAGE})
    park_all(desk, "big", *small)
    assert desk.grow({"best": 50 * PAGE}) == [f"restore {each}" for each in small[:8]]
    assert desk.row("big").passes == 8
    assert desk.finished("small 0") == []  # there is room for the ninth, and nobody but the big one may have it
    assert desk.finished("best") == ["restore big", "restore small 8"]
    assert desk.restored("big") == []
    assert desk.row("big").passes == 0


def test_parked_work_comes_back_before_fresh_work_of_its_tier() -> None:
    desk = desk_with({"long": 160, "big": 320}, pages=57)
    park_all(desk, "big")
    desk.grow({"long": 40 * PAGE})
    assert desk.submit("fresh") == []  # 40 + 3 and 1 + 3 would fit
    assert desk.state("fresh") == "queued"
    assert desk.finished("long") == ["restore big", "admit fresh"]


def test_a_fresh_request_of_a_strictly_higher_tier_may_go_first() -> None:
    desk = desk_with({"long": 160, "big": 320}, pages=57)
    park_all(desk, "big")
    desk.grow({"long": 40 * PAGE})
    assert desk.submit("urgent", priority=1) == ["admit urgent"]


def test_a_promoted_parked_request_is_not_passed_by_fresh_work_of_its_new_tier() -> None:
    policy = AdmissionPolicy(promote_every=1)
    desk = desk_with({"long": 160, "big": 320}, pages=57, policy=policy)
    park_all(desk, "big")
    desk.grow({"long": 40 * PAGE})
    assert desk.row("big").effective_priority == 1
    assert desk.submit("urgent", priority=1) == []
    assert desk.submit("more urgent", priority=2) == ["admit more urgent"]


def test_a_deferred_restore_puts_it_back_as_if_nothing_had_happened() -> None:
    desk = desk_with({"long": 480, "short": 320}, pages=60)
    park_all(desk, "short")
    desk.now += 7.0
    assert desk.grow({"long": 400}) == ["restore short"]
    desk.now += 2.0
    assert desk.deferred("short") == []
    row = desk.row("short")
    assert (row.state, row.parks, row.waited_s) == ("parked", 1, 9.0)


def test_a_group_that_deferred_is_left_alone_until_it_has_news_or_time_has_passed() -> None:
    desk = desk_with({"long": 480, "short": 320}, pages=60)
    park_all(desk, "short")
    desk.grow({"long": 400})
    assert desk.deferred("short") == []
    assert desk.wait(0.04) == []
    assert desk.wait(0.01) == ["restore short"]
    assert desk.deferred("short") == []
    assert desk.progress() == ["restore short"]


def test_waiting_is_counted_over_all_stretches_and_running_is_not() -> None:
    desk = Desk(pages=60, seats=1)
    assert desk.submit("other") == ["admit other"]
    assert desk.submit("mine") == []
    desk.now = 3.0
    assert desk.finished("other") == ["admit mine"]
    assert desk.progress() == []
    desk.now = 50.0
    assert desk.row("mine").waited_s == 3.0
    assert desk.submit("urgent", priority=1) == ["park mine"]
    desk.now = 51.0
    assert desk.parked("mine") == ["admit urgent"]
    desk.now = 55.0
    assert desk.row("mine").waited_s == 7.0


def test_age_lifts_a_parked_request_above_fresh_work_of_higher_tiers() -> None:
    """Case 4: the wait is bounded under a constant stream of higher tiers."""
    desk = desk_with({"long": 160, "big": 320}, pages=57)
    park_all(desk, "big")
    desk.grow({"long": 40 * PAGE})
    assert desk.submit("first urgent", priority=1) == ["admit first urgent"]
    assert desk.finished("first urgent") == []
    desk.now += 29.0
    assert desk.submit("second urgent", priority=1) == ["admit second urgent"]
    assert desk.finished("second urgent") == []
    desk.now += 1.0
    assert desk.submit("third urgent", priority=1) == []  # the parked one has risen to its tier
    assert desk.finished("long") == ["restore big", "admit third urgent"]


@pytest.mark.parametrize(
    ("waited_s", "tiers"),
    [(0.0, 0), (29.9, 0), (30.0, 1), (60.0, 3), (90.0, 7), (120.0, 15), (33 * 30.0, 2**33 - 1), (1e9, 2**33 - 1)],
)
def test_each_step_of_waiting_lifts_by_twice_the_tiers_of_the_one_before(waited_s: float, tiers: int) -> None:
    assert AdmissionPolicy().ageing(waited_s) == tiers


def test_a_seat_is_needed_to_come_back() -> None:
    desk = Desk(pages=100, seats=2)
    desk.submit("a")
    desk.submit("b")
    desk.grow({"a": 100, "b": 50})
    assert desk.submit("urgent", priority=1) == ["park b"]
    assert desk.parked("b") == ["admit urgent"]
    assert desk.progress() == []
    assert desk.finished("a") == ["restore b"]


def test_where_the_engine_sees_less_room_than_admission_its_word_counts() -> None:
    """Hysteresis: what admission thinks fits must not be what the engine asks to have parked at once."""
    desk = desk_with({"long": 320, "short": 160}, pages=100)
    assert desk.pressure(5) == [
        "park short"
    ]  # 64 pages are free as admission counts them: 69 less than the engine says
    assert desk.parked("short") == []
    assert desk.progress() == []
    assert desk.finished("long") == ["restore short"]
