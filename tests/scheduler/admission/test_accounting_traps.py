"""One test for each accounting trap of public servers that can exist in admission; the engine's are beside the engine.

docs/decisions/010-accounting-traps.md lists all eighteen, and says of the others why they cannot exist here.
"""

import pytest

from scheduler.admission import NeverFits, TooManyChoices
from scheduler.messages import FinishReason
from tests.scheduler.admission.desk import PAGE, Desk


def residents(tokens: dict[str, int], *, pages: int, seats: int = 16, recompute: bool = True, **priority: int) -> Desk:
    desk = Desk(pages=pages, seats=seats, recompute=recompute)
    for request_id in tokens:
        assert desk.submit(request_id, max_tokens=9000, priority=priority.get(request_id, 0)) == [f"admit {request_id}"]
    assert desk.grow(tokens) == []
    return desk


def parked_beside(taker: str, desk: Desk, *request_ids: str) -> None:
    """Each is parked while one other takes all the room."""
    side = desk.sides["g1"]
    for request_id in request_ids:
        others = sum(side.pages(each) for each in side.residents if each not in (taker, request_id))
        side.residents[taker] = (side.capacity.num_pages - others) * PAGE
        assert desk.parked(request_id) == []


def test_trap_01_what_is_free_is_the_engine_s_word_and_no_sum_over_those_who_run() -> None:
    """A pool full of other things looked empty, and every restore failed."""
    desk = residents({"a": PAGE, "b": 10 * PAGE}, pages=30)
    side = desk.sides["g1"]
    side.residents["residue"] = 24 * PAGE
    assert desk.parked("b") == []
    assert desk.group().pages_free == 5
    del side.residents["residue"]
    assert desk.progress() == ["restore b"]


def test_trap_02_failures_count_for_a_time_and_not_by_their_number() -> None:
    """A counter alone burns out in milliseconds, because the loop spins."""
    desk = residents({"long": 600, "old": 100, "new": 100}, pages=200, recompute=False)
    assert desk.pressure(1) == ["park new"]
    assert desk.park_failed("new") == ["park old"]
    assert desk.park_failed("old") == []
    assert [desk.pressure(1) for _ in range(1000)] == [[]] * 1000
    desk.now += 1.0
    assert desk.pressure(1) == ["park new"]


def test_trap_03_one_almost_as_large_as_the_pool_comes_back_without_a_margin() -> None:
    """Parked near its limit it never fitted, for the margin's sake."""
    desk = residents({"other": 16, "big": 16}, pages=40)
    desk.grow({"big": 39 * PAGE})
    parked_beside("other", desk, "big")
    assert desk.finished("other") == ["restore big"]


def test_trap_03_what_can_never_fit_is_refused_at_once_and_blocks_nobody() -> None:
    desk = residents({"running": 16}, pages=4, seats=1)
    with pytest.raises(NeverFits):
        desk.submit("huge", 4 * PAGE)
    desk.submit("next")
    assert desk.finished("running") == ["admit next"]


def test_trap_04_a_big_one_is_passed_by_smaller_ones_eight_times_and_then_comes_back() -> None:
    """Smaller ones were restored and parked again and again, and it waited for minutes."""
    small = [f"small {n}" for n in range(9)]
    desk = residents({"best": 16, "big": 60 * PAGE} | dict.fromkeys(small, PAGE), pages=100, best=9)
    parked_beside("best", desk, "big", *small)
    assert desk.grow({"best": 50 * PAGE}) == [f"restore {each}" for each in small[:8]]
    for request_id in small[:8]:
        assert desk.finished(request_id) == []
    assert desk.finished("best") == ["restore big", "restore small 8"]


def test_trap_05_a_request_that_takes_over_an_id_and_a_slot_inherits_no_size() -> None:
    """A slot just given a task still mirrored the previous prompt: wrong leader, size and budget."""
    desk = residents({"a": 900, "b": 160}, pages=200)
    desk.finished("a")
    desk.is_deaf = True
    assert desk.submit("a", 32) == ["admit a"]
    desk.progress()
    row = desk.row("a")
    assert (row.slot, row.tokens, row.pages) == (0, 32, 0)
    assert desk.group().pages_unclaimed == 200 - 10 - 2


def test_trap_05_one_the_engine_has_not_let_in_yet_is_neither_leader_nor_victim() -> None:
    desk = residents({"long": 600, "old": 100}, pages=200)
    desk.is_deaf = True
    assert desk.submit("coming", 80 * PAGE) == ["admit coming"]
    assert desk.pressure(1) == ["park old"]
    assert desk.group().survivor_id == "long"


def test_trap_06_the_shared_prompt_of_a_family_is_charged_once_and_each_choice_for_itself() -> None:
    desk = Desk(pages=100)
    assert desk.submit("family", 20 * PAGE, n=4) == ["admit family"]
    assert desk.group().pages_unclaimed == 100 - (19 + 4)
    desk.sides["g1"].held["family"] = 3  # the first chunk of the prompt; three choices wait for it
    desk.progress()
    assert desk.group().pages_unclaimed == 100 - (19 + 4)


@pytest.mark.parametrize(("tokens", "admitted"), [(7 * PAGE, True), (7 * PAGE + 1, False)])
def test_trap_07_pages_are_counted_and_no_tokens(tokens: int, admitted: bool) -> None:
    """One token beyond a page's border costs a page."""
    desk = residents({"a": 10 * PAGE}, pages=23)
    assert desk.submit("b", tokens) == (["admit b"] if admitted else [])


@pytest.mark.parametrize(("others", "restored"), [(33 * PAGE, ["restore b"]), (33 * PAGE + 1, [])])
def test_trap_08_the_candidate_s_own_runway_counts(others: int, restored: list[str]) -> None:
    """Without it, what comes back is parked again a few steps later."""
    desk = residents({"a": PAGE, "b": 10 * PAGE}, pages=33 + 3 + 10 + 3)
    parked_beside("a", desk, "b")
    assert desk.grow({"a": others}) == restored


def test_trap_08_so_does_that_of_those_on_their_way_back() -> None:
    desk = residents({"a": PAGE, "b": 10 * PAGE, "c": 10 * PAGE}, pages=57)
    parked_beside("a", desk, "c", "b")
    assert desk.grow({"a": 29 * PAGE}) == ["restore b"]  # 29 + 3, 10 + 3, and 12 are left of the 13 for c


def test_trap_09_what_the_arena_cannot_hold_now_is_not_ordered_out() -> None:
    """A budget that two states may share for a moment is no cap. Parks under way count, those on the way back too."""
    desk = Desk(pages=200, arena=15, recompute=False)
    for request_id in ("long", "a", "b"):
        desk.submit(request_id)
    desk.grow({"long": 900, "a": 160, "b": 160})
    assert desk.parked("b") == ["restore b"]
    assert desk.group().arena_free == 5  # its copy in is under way
    assert desk.pressure(100) == []
    desk.restored("b")
    desk.is_deaf = True
    assert desk.pressure(100) == ["park b"]
    assert desk.pressure(100) == []


def test_trap_12_who_is_leaving_covers_the_pressure_and_nobody_else_goes() -> None:
    """While a copy was under way everyone was ended."""
    desk = residents({"long": 600, "a": 160, "b": 160}, pages=200)
    desk.is_deaf = True
    assert desk.pressure(11) == ["park b"]
    assert [desk.pressure(11) for _ in range(100)] == [[]] * 100
    assert desk.live() == {"long", "a", "b"}


def test_trap_13_a_bad_request_is_refused_before_anything_is_done_for_it() -> None:
    """One was accepted, parked, and then told in its stream that it could never run."""
    desk = residents({"running": 100}, pages=20, seats=1)
    commands = desk.group().commands_given
    for prompt, n, refusal in ((400, 1, NeverFits), (16, 2, TooManyChoices)):
        with pytest.raises(refusal):
            desk.submit("bad", prompt, n=n, priority=9)
    assert desk.group().commands_given == commands
    assert desk.live() == {"running"}


def test_trap_14_what_was_dropped_is_as_long_as_it_was() -> None:
    """Bounded by its emptied prompt it seemed small, or never to fit."""
    desk = residents({"a": PAGE, "b": 10 * PAGE}, pages=30)
    desk.sides["g1"].residents["a"] = 20 * PAGE
    assert desk.parked("b", copied=False) == []
    assert (desk.row("b").tokens, desk.row("b").prompt_tokens, desk.row("b").arena_pages) == (10 * PAGE, PAGE, 0)
    assert desk.grow({"a": 14 * PAGE + 1}) == []  # 15 + 3 of 30, and it wants 13
    assert desk.grow({"a": 14 * PAGE}) == ["restore b"]


def test_trap_15_the_end_of_one_harms_no_parked_and_no_held_one() -> None:
    """Abort-all and the sweep after a decode error ended slots that had no part in it."""
    desk = residents({"a": 100, "b": 100, "c": 100}, pages=40)
    desk.park("b")
    desk.parked("b")
    desk.sides["g1"].residents["a"] = 33 * PAGE
    desk.parked("c")
    assert desk.finished("a", FinishReason.ERROR) == ["restore c"]
    assert desk.live() == {"b", "c"}
    assert desk.row("b").held


def test_trap_16_a_prompt_is_reserved_as_a_whole_before_its_first_chunk() -> None:
    desk = residents({"a": 20 * PAGE}, pages=30)
    desk.sides["g1"].held["a"] = 2
    desk.progress()
    assert (desk.group().pages_free, desk.group().pages_unclaimed) == (28, 10)
    assert desk.submit("b", 5 * PAGE) == []


def test_trap_17_several_choices_are_served_or_refused_by_name_and_never_an_assertion() -> None:
    desk = Desk(seats=4)
    with pytest.raises(TooManyChoices, match="n is 5, but at most 4 choices"):
        desk.submit("five", n=5)
    assert desk.submit("four", n=4) == ["admit four"]


def test_trap_18_no_wait_is_without_a_bound() -> None:
    """A turn was abandoned by a timer, or hung for half an hour. Age bounds the wait, and no timer ends anyone."""
    desk = residents({"running": 16}, pages=64, seats=1, running=5)
    desk.submit("low")
    running, turns = "running", 0
    while running != "low":
        turns += 1
        desk.submit(f"stream {turns}", priority=5)
        desk.now += 30.0
        running = desk.finished(running)[0].removeprefix("admit ")
    assert turns == 3  # 7 tiers after 90 s
    assert "low" in desk.live()


def test_trap_18_nobody_waits_for_room_that_only_the_idle_hold() -> None:
    """Idle residue that no ledger knew deadlocked everyone: here nothing without a living request counts as taken, and
    whoever is held holds nothing."""
    desk = residents({"a": 300, "b": 300}, pages=40, seats=2)
    for request_id in ("a", "b"):
        desk.park(request_id)
        desk.parked(request_id)
    assert (desk.group().pages_unclaimed, desk.group().seats_free) == (40, 2)
    assert desk.submit("fresh", 39 * PAGE) == ["admit fresh"]
