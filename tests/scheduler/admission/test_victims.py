"""Who is parked under pressure, how many, and who never is. Trap numbers count the bugs the design started from."""

from scheduler.admission import AdmissionPolicy
from tests.scheduler.admission.desk import Desk


def desk_with(tokens: dict[str, int], *, priorities: dict[str, int] | None = None, arena: int = 1000) -> Desk:
    """Residents in order of arrival, grown to so many tokens."""
    desk = Desk(pages=200, arena=arena, recompute=False)
    for request_id in tokens:
        assert desk.submit(request_id, priority=(priorities or {}).get(request_id, 0)) == [f"admit {request_id}"]
    assert desk.grow(tokens) == []
    return desk


def park_and_restore(desk: Desk, request_id: str, times: int) -> None:
    """Each round ends with the end of a passer-by of the highest tier, which makes room."""
    for turn in range(times):
        passer_by = f"passer-by {turn}"
        assert desk.submit(passer_by, priority=9) == [f"admit {passer_by}"]
        assert desk.pressure(1) == [f"park {request_id}"]
        assert desk.parked(request_id) == []
        assert desk.finished(passer_by) == [f"restore {request_id}"]
        assert desk.restored(request_id) == []
    assert desk.row(request_id).parks == times


def test_the_lowest_tier_goes_first_though_it_is_the_longest() -> None:
    desk = desk_with({"low": 600, "high": 100}, priorities={"high": 10})
    assert desk.pressure(1) == ["park low"]


def test_within_a_tier_the_newest_goes_first() -> None:
    desk = desk_with({"long": 600, "old": 100, "new": 100})
    assert desk.pressure(1) == ["park new"]


def test_the_longest_of_a_tier_is_spared_though_it_is_the_newest() -> None:
    desk = desk_with({"best": 900, "old": 100, "middle": 100, "long": 600}, priorities={"best": 1})
    assert desk.pressure(1) == ["park middle"]


def test_the_longest_goes_when_it_is_the_only_candidate_of_the_lowest_tier() -> None:
    desk = desk_with({"best": 900, "other": 50, "alone": 600}, priorities={"best": 1, "other": 1})
    assert desk.pressure(1) == ["park alone"]


def test_the_longest_of_a_low_tier_goes_before_any_of_a_higher_tier() -> None:
    desk = desk_with({"best": 900, "high": 50, "long": 600, "short": 20}, priorities={"best": 1, "high": 1})
    assert desk.pressure(30) == ["park short", "park long"]


def test_of_equal_length_the_newest_goes_and_the_first_to_arrive_is_protected() -> None:
    desk = desk_with({"first": 100, "second": 100, "third": 100})
    assert desk.pressure(1) == ["park third"]
    assert desk.group().survivor_id == "first"


def test_no_more_victims_than_the_shortfall_needs() -> None:
    desk = desk_with({"long": 600, "a": 160, "b": 160, "c": 160})
    assert desk.pressure(11) == ["park c"]  # ten pages and its margin of one


def test_a_second_victim_for_one_page_more() -> None:
    desk = desk_with({"long": 600, "a": 160, "b": 160, "c": 160})
    assert desk.pressure(12) == ["park c", "park b"]


def test_a_small_victim_is_let_go_when_the_next_one_covers_everything_alone() -> None:
    """A newly admitted request with few pages frees little: parking it as well would be for nothing."""
    desk = desk_with({"long": 900, "medium": 320, "tiny": 16})
    assert desk.pressure(10) == ["park medium"]


def test_a_lower_tier_is_not_let_go_for_the_sake_of_a_higher_one() -> None:
    desk = desk_with({"long": 900, "medium": 320, "tiny": 16}, priorities={"long": 1, "medium": 1})
    assert desk.pressure(10) == ["park tiny", "park medium"]


def test_pages_on_their_way_out_count_as_covered() -> None:
    desk = desk_with({"long": 600, "a": 160, "b": 160})
    desk.is_deaf = True
    assert desk.pressure(5) == ["park b"]
    assert desk.pressure(5) == []  # the engine repeats itself before it has heard
    assert desk.pressure(11) == []
    assert desk.pressure(12) == ["park a"]


def test_the_engine_s_own_count_of_parks_under_way_is_not_subtracted_again() -> None:
    desk = desk_with({"long": 600, "a": 160, "b": 160})
    assert desk.pressure(5) == ["park b"]
    assert desk.pressure(5) == ["park a"]  # five more beyond b, which the engine already counts as gone


def test_the_survivor_is_the_best_by_tier_then_by_length() -> None:
    desk = desk_with({"long": 900, "vip": 100, "longer vip": 160}, priorities={"vip": 5, "longer vip": 5})
    assert desk.pressure(1) == ["park long"]
    assert desk.group().survivor_id == "longer vip"


def test_the_survivor_is_never_parked_even_when_it_is_overtaken() -> None:
    desk = desk_with({"first": 100, "second": 90})
    assert desk.pressure(1) == ["park second"]
    desk.park_failed("second")
    desk.grow({"second": 500})
    desk.wait(10.0)
    assert desk.pressure(1) == ["park second"]
    assert desk.group().survivor_id == "first"


def test_the_survivor_is_cleared_when_it_ends_and_marked_anew_under_the_next_pressure() -> None:
    desk = desk_with({"first": 300, "second": 200, "third": 100})
    assert desk.pressure(1) == ["park third"]
    assert desk.group().survivor_id == "first"
    assert desk.parked("third") == []
    assert desk.finished("first") == ["restore third"]
    assert desk.group().survivor_id is None
    assert desk.restored("third") == []
    assert desk.pressure(1) == ["park third"]
    assert desk.group().survivor_id == "second"


def test_the_mark_stands_until_the_victims_have_left_and_no_longer() -> None:
    desk = desk_with({"long": 600, "old": 160, "new": 160})
    assert desk.pressure(22) == ["park new", "park old"]  # ten pages and a margin of one each
    assert desk.parked("new") == []
    assert desk.group().survivor_id == "long"
    assert desk.parked("old") == []
    assert (desk.group().survivor_id, desk.group().shortfall) == (None, 0)


def test_the_mark_ends_when_one_that_was_no_victim_ends_and_leaves_room() -> None:
    desk = desk_with({"long": 600, "old": 160, "new": 160})
    assert desk.pressure(11) == ["park new"]
    assert desk.park_failed("new") == ["park old"]
    assert desk.park_failed("old") == []
    assert desk.group().survivor_id == "long"
    assert desk.finished("new") == []
    assert desk.group().survivor_id is None


def test_one_that_is_left_alone_survives_nothing_however_much_was_short() -> None:
    desk = desk_with({"long": 600, "short": 100})
    assert desk.pressure(50) == ["park short"]
    assert desk.parked("short") == []
    assert desk.group().survivor_id is None


def test_one_of_a_higher_tier_that_came_meanwhile_takes_the_mark_and_is_not_parked_for_it() -> None:
    desk = desk_with({"long": 600, "old": 100})
    desk.is_deaf = True
    assert desk.submit("vip", priority=10) == ["admit vip"]
    assert desk.pressure(1) == ["park old"]
    assert desk.group().survivor_id == "long"
    desk.hears("vip", number=4, tokens=16)
    assert desk.park_failed("old") == ["park long"]
    assert desk.group().survivor_id == "vip"


def test_one_that_is_being_cancelled_survives_no_more() -> None:
    desk = desk_with({"long": 600, "old": 300, "middle": 100, "new": 100})
    assert desk.pressure(1) == ["park new"]
    desk.is_deaf = True
    assert desk.cancel("long") == ["cancel long"]
    assert desk.pressure(45) == ["park middle"]  # 38 pages and a margin are coming
    assert desk.group().survivor_id == "old"


def test_the_last_resident_is_never_parked() -> None:
    desk = desk_with({"only": 3000})
    assert desk.pressure(50) == []
    assert desk.group().survivor_id is None


def test_one_resident_always_stays_whatever_the_shortfall() -> None:
    desk = desk_with({"a": 100, "b": 100, "c": 100})
    assert desk.pressure(1000) == ["park c", "park b"]


def test_every_third_park_promotes_by_one_tier() -> None:
    desk = desk_with({"vip": 900, "long": 600, "old": 100, "new": 100}, priorities={"vip": 9})
    park_and_restore(desk, "new", 3)
    assert desk.row("new").effective_priority == 1
    assert desk.pressure(1) == ["park old"]


def test_two_parks_do_not_promote() -> None:
    desk = desk_with({"vip": 900, "long": 600, "old": 100, "new": 100}, priorities={"vip": 9})
    park_and_restore(desk, "new", 2)
    assert desk.row("new").effective_priority == 0
    assert desk.pressure(1) == ["park new"]


def test_a_failed_park_makes_another_the_victim() -> None:
    desk = desk_with({"long": 600, "old": 100, "new": 100})
    assert desk.pressure(1) == ["park new"]
    assert desk.park_failed("new") == ["park old"]
    assert desk.row("new").state == "resident"
    assert desk.row("new").parks == 0


def test_when_every_park_fails_admission_falls_silent_until_time_has_passed() -> None:
    """Trap 2: a count of failures alone burns out in milliseconds; here a failure is remembered for a time."""
    desk = desk_with({"long": 600, "old": 100, "new": 100})
    assert desk.pressure(1) == ["park new"]
    assert desk.park_failed("new") == ["park old"]
    assert desk.park_failed("old") == []
    assert desk.pressure(1) == []
    desk.now += 0.9
    assert desk.pressure(1) == []
    desk.now += 0.1
    assert desk.pressure(1) == ["park new"]


def test_a_failure_is_forgotten_when_something_ends() -> None:
    desk = desk_with({"long": 600, "old": 100, "new": 100, "newest": 16})
    assert desk.pressure(1) == ["park newest"]
    assert desk.park_failed("newest") == ["park new"]
    assert desk.park_failed("new") == ["park old"]
    assert desk.park_failed("old") == []
    assert desk.finished("newest") == []
    assert desk.pressure(1) == ["park new"]


def test_a_victim_too_large_for_the_arena_is_not_tried() -> None:
    """Trap 9: the budget is a cap at every moment, so what cannot fit is skipped and the next smaller one goes."""
    desk = desk_with({"long": 900, "small": 100, "large": 400}, arena=10)
    assert desk.pressure(1) == ["park small"]


def test_arena_pages_of_parks_just_ordered_are_spoken_for() -> None:
    desk = desk_with({"long": 900, "a": 100, "b": 100, "c": 100}, arena=15)
    desk.is_deaf = True
    assert desk.pressure(100) == ["park c", "park b"]
    assert desk.pressure(100) == []


def test_nobody_is_parked_where_there_is_no_arena() -> None:
    desk = desk_with({"long": 900, "a": 100, "b": 100}, arena=0)
    assert desk.pressure(3) == []


def test_a_request_the_engine_has_not_let_in_yet_is_no_victim() -> None:
    """Trap 5: one just placed has no size yet, so it must not be measured against the others."""
    desk = desk_with({"long": 600, "old": 100})
    desk.is_deaf = True
    assert desk.submit("coming") == ["admit coming"]
    assert desk.pressure(1) == ["park old"]


def test_a_request_on_its_way_back_is_no_victim() -> None:
    desk = desk_with({"long": 600, "old": 100, "new": 100, "newest": 100})
    assert desk.pressure(1) == ["park newest"]
    assert desk.parked("newest") == []
    assert desk.finished("new") == ["restore newest"]
    assert desk.state("newest") == "restoring"
    assert desk.pressure(1) == ["park old"]


def test_a_cancelled_resident_is_no_victim_and_its_pages_count_as_coming() -> None:
    desk = desk_with({"long": 600, "old": 160, "new": 160})
    desk.is_deaf = True
    assert desk.cancel("new") == ["cancel new"]
    assert desk.pressure(11) == []
    assert desk.pressure(12) == ["park old"]


def test_the_number_of_parks_that_promote_is_the_policy_s() -> None:
    policy = AdmissionPolicy(promote_every=2)
    assert [policy.promotion(parks) for parks in range(6)] == [0, 0, 1, 1, 2, 2]
