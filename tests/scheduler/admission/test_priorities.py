"""A priority changed while its request lives takes effect at once, in every state."""

from tests.scheduler.admission.desk import PAGE, Desk


def full_desk() -> Desk:
    desk = Desk(seats=1)
    desk.submit("running", priority=9)
    for request_id in ("a", "b", "c"):
        desk.submit(request_id)
    desk.progress()
    return desk


def test_a_queued_one_moves_to_the_head_and_back() -> None:
    desk = full_desk()
    assert desk.set_priority("c", 1) == []
    assert desk.row("c").priority == 1
    assert desk.finished("running") == ["admit c"]
    assert desk.set_priority("a", -1) == []
    assert desk.finished("c") == ["admit b"]
    assert desk.finished("b") == ["admit a"]


def test_a_queued_one_given_the_tier_of_others_stands_by_its_arrival() -> None:
    desk = full_desk()
    desk.submit("urgent", priority=1)
    desk.set_priority("a", 1)
    assert desk.finished("running") == ["admit a"]


def test_a_queued_one_that_is_raised_displaces() -> None:
    desk = full_desk()
    assert desk.set_priority("b", 10) == ["park running"]
    assert desk.parked("running") == ["admit b"]


def test_a_blocked_head_that_is_lowered_lets_the_next_one_in() -> None:
    desk = Desk(pages=20)
    desk.submit("a", 160)
    desk.submit("big", 240)
    desk.submit("small")
    assert desk.set_priority("big", -1) == ["admit small"]


def test_a_resident_that_is_lowered_is_displaced_by_one_who_waits() -> None:
    desk = full_desk()
    assert desk.set_priority("running", -1) == ["park running"]
    assert desk.parked("running") == ["admit a"]


def test_a_resident_that_is_raised_is_no_longer_the_victim() -> None:
    desk = Desk(pages=200)
    for request_id in ("long", "old", "new"):
        desk.submit(request_id)
    desk.grow({"long": 600, "old": 100, "new": 100})
    assert desk.set_priority("new", 1) == []
    assert desk.pressure(1) == ["park old"]


def test_who_survives_is_asked_again_when_a_resident_changes() -> None:
    desk = Desk(pages=200)
    for request_id in ("first", "second", "third"):
        desk.submit(request_id)
    desk.grow({"first": 300, "second": 200, "third": 100})
    assert desk.pressure(1) == ["park third"]
    assert desk.group().survivor_id == "first"
    desk.set_priority("second", 5)
    assert desk.pressure(20) == ["park first"]
    assert desk.group().survivor_id == "second"


def test_one_being_parked_waits_at_its_new_priority() -> None:
    desk = Desk(seats=1)
    desk.submit("low")
    desk.progress()
    assert desk.submit("high", priority=1) == ["park low"]
    assert desk.set_priority("low", 2) == []
    assert desk.parked("low") == ["restore low"]


def test_a_parked_one_that_is_raised_comes_back_first_or_displaces() -> None:
    desk = Desk(pages=200, seats=1)
    desk.submit("a")
    desk.progress()
    desk.submit("high", priority=1)
    desk.parked("a")
    desk.progress()
    assert desk.set_priority("a", 5) == ["park high"]
    assert desk.parked("high") == ["restore a"]
    assert desk.finished("a") == ["restore high"]


def test_one_on_its_way_back_may_be_displaced_when_it_has_landed() -> None:
    desk = Desk(seats=1)
    desk.submit("a", priority=5)
    desk.progress()
    desk.submit("b")
    desk.park("a")
    assert desk.parked("a") == ["admit b"]
    assert desk.unpark("a") == []
    assert desk.progress() == ["park b"]
    assert desk.parked("b") == ["restore a"]
    assert desk.set_priority("a", -5) == []
    assert desk.restored("a") == ["park a"]


def test_a_held_one_keeps_its_new_priority_for_its_return() -> None:
    desk = full_desk()
    desk.park("c")
    assert desk.set_priority("c", 3) == []
    assert desk.row("c").priority == 3
    assert desk.unpark("c") == []
    assert desk.finished("running") == ["admit c"]


def test_the_same_priority_again_changes_nothing() -> None:
    desk = Desk(pages=200)
    desk.submit("a")
    desk.submit("b")
    desk.grow({"a": 300, "b": 100})
    desk.pressure(1)
    assert desk.set_priority("a", 0) == []
    assert desk.group().survivor_id == "a"


def test_age_and_parks_count_as_before() -> None:
    desk = full_desk()
    desk.now = 31.0
    assert desk.set_priority("a", 4) == []
    desk.submit("fresh", 10 * PAGE, priority=5)
    assert desk.finished("running") == ["admit a"]  # its age is worth a tier
