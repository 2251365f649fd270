"""A request of several choices: enters, parks and comes back as one; its shared prompt counts once, its seats each.

Pages are 16 tokens. Of a prompt of 100 tokens 6 pages are shared: those of all its tokens but the last. Beside others a
choice wants its own pages for 32 tokens more, and one of margin.
"""

import pytest

from scheduler.admission import GroupCapacity, NeverFits, TooManyChoices
from tests.scheduler.admission.desk import PAGE, Desk
from tests.scheduler.admission.paper_life import submission


@pytest.mark.parametrize(
    ("prompt", "generated", "n", "choices", "pages"),
    [
        pytest.param(100, 0, 1, 1, 7, id="alone"),
        pytest.param(100, 0, 3, 3, 6 + 3, id="six full pages once, then one each"),
        pytest.param(96, 0, 3, 3, 5 + 3, id="the page of the last prompt token is each one's own"),
        pytest.param(97, 0, 3, 3, 6 + 3, id="the last token begins a page"),
        pytest.param(97, 16, 3, 3, 6 + 3 * 2, id="each grows by itself"),
        pytest.param(97, 16, 3, 1, 6 + 2, id="one living choice holds what a solo request holds"),
        pytest.param(1, 0, 3, 3, 3, id="nothing to share"),
    ],
)
def test_the_shared_prompt_counts_once_and_the_rest_for_each(
    prompt: int, generated: int, n: int, choices: int, pages: int
) -> None:
    """Trap 6."""
    capacity = GroupCapacity(group_id="g", num_pages=100, page_size=PAGE, seats=8, max_model_len=1000)
    assert capacity.pages(submission("a", prompt, n=n), generated, choices) == pages


def test_it_takes_a_seat_for_each_choice() -> None:
    desk = Desk(seats=4)
    assert desk.submit("family", n=3) == ["admit family"]
    assert desk.group().seats_free == 1
    assert desk.submit("pair", n=2) == []
    assert desk.submit("solo") == []  # and nobody passes the head of the line
    assert desk.finished("family") == ["admit pair", "admit solo"]


def test_it_waits_until_pages_for_all_its_choices_are_free() -> None:
    desk = Desk(pages=41, seats=8)
    desk.submit("running", 10 * PAGE)  # 10 and 3 wanted
    # 6 shared, 3 choices of 1 page, each wants 3 more: 18; with 10 and 3 that is 31.
    assert desk.submit("family", 100, n=3) == ["admit family"]
    assert desk.grow({"family": 100}) == []
    assert desk.group().pages_unclaimed == 41 - 10 - 9
    assert desk.submit("next", 7 * PAGE + 1) == []  # 8 and 3 of 22 - 9 - 3
    assert desk.cancel("next") == []
    assert desk.submit("fits", 7 * PAGE) == ["admit fits"]


def test_a_choice_that_ends_gives_its_seat_and_pages_back_at_once() -> None:
    desk = Desk(seats=4)
    desk.submit("family", 100, n=3)
    desk.submit("pair", n=2)
    desk.sides["g1"].seats["family"] = 2
    assert desk.progress() == ["admit pair"]
    assert (desk.row("family").seats, desk.row("family").n) == (2, 3)
    assert desk.group().seats_free == 0


def test_under_pressure_it_goes_as_one_and_covers_what_all_its_choices_hold() -> None:
    desk = Desk(pages=200)
    desk.submit("long")
    desk.submit("old")
    desk.submit("family", 100, n=3)
    desk.grow({"long": 600, "old": 160, "family": 120})
    # 6 shared and 2 each are 12, and a margin for each: 15.
    assert desk.pressure(15) == ["park family"]
    assert desk.parked("family") == []
    assert (desk.row("family").arena_pages, desk.row("family").seats) == (12, 3)


def test_one_page_more_takes_a_second_victim() -> None:
    desk = Desk(pages=200)
    desk.submit("long")
    desk.submit("old")
    desk.submit("family", 100, n=3)
    desk.grow({"long": 600, "old": 160, "family": 120})
    assert desk.pressure(16) == ["park family", "park old"]


def test_a_parked_family_needs_a_seat_for_each_living_choice() -> None:
    desk = Desk(pages=200, seats=4)
    desk.submit("best", priority=9)
    desk.submit("family", 100, n=3)
    desk.sides["g1"].seats["family"] = 2
    desk.progress()
    assert desk.submit("urgent", n=2, priority=5) == ["park family"]
    assert desk.parked("family") == ["admit urgent"]
    assert desk.submit("solo", priority=6) == ["admit solo"]
    assert desk.finished("solo") == []  # one seat is free, and two choices live
    assert desk.finished("best") == ["restore family"]


def test_a_family_parked_by_dropping_its_pages_needs_those_of_its_tokens_to_come_back() -> None:
    """Parked in the arena or not at all: what it needs is the same."""
    desk = Desk(pages=60)
    desk.submit("best", priority=9)
    desk.submit("family", 100, n=3)
    desk.grow({"best": 100, "family": 120})
    desk.sides["g1"].residents["best"] = 40 * PAGE
    assert desk.parked("family", copied=False) == []
    assert desk.row("family").arena_pages == 0
    # It needs 12 and wants 9; the other wants 3: 24 must be free.
    assert desk.grow({"best": 36 * PAGE + 1}) == []
    assert desk.grow({"best": 36 * PAGE}) == ["restore family"]


def test_a_higher_family_displaces_as_many_as_its_choices_need_seats() -> None:
    desk = Desk(pages=200, seats=3)
    for request_id in ("a", "b", "c"):
        desk.submit(request_id)
    desk.grow({"a": 300, "b": 50, "c": 50})
    assert desk.submit("family", n=2, priority=1) == ["park c", "park b"]
    assert desk.parked("c") == []
    assert desk.parked("b") == ["admit family"]


def test_more_choices_than_seats_are_refused_at_once() -> None:
    desk = Desk(groups=())
    desk.add_group("g1", seats=2)
    desk.add_group("g2", seats=4)
    with pytest.raises(TooManyChoices) as refused:
        desk.submit("a", n=5)
    assert (refused.value.n, refused.value.seats) == (5, 4)
    assert str(refused.value) == "n is 5, but at most 4 choices can run side by side: ask for at most 4"
    assert desk.submit("b", n=4) == ["admit b g2"]


def test_a_family_that_never_fits_is_refused_with_the_numbers() -> None:
    desk = Desk(pages=8)
    with pytest.raises(NeverFits) as refused:
        desk.submit("a", 100, n=3)  # 6 shared and one each
    assert (refused.value.needed_tokens, refused.value.limit_tokens) == (9 * PAGE, 8 * PAGE)
    assert str(refused.value) == (
        "3 choices need 144 tokens of KV to generate one each (the shared prompt counted once, in whole pages), "
        "but the KV pool is 128 tokens: ask for fewer choices or send a shorter prompt"
    )
    assert desk.submit("b", 100, n=2) == ["admit b"]


def test_a_family_longer_than_the_model_is_told_so_as_a_solo_request_is() -> None:
    with pytest.raises(NeverFits, match="the model's length is 512"):
        Desk(pages=100, max_model_len=512).submit("a", 600, n=2)


def test_alone_a_family_needs_no_margin() -> None:
    """Trap 3 for families: what fits the pool alone never waits for more."""
    desk = Desk(pages=9)
    desk.submit("running")
    assert desk.submit("family", 100, n=3) == []
    assert desk.finished("running") == ["admit family"]


def test_near_its_end_it_wants_no_more_than_its_choices_can_take() -> None:
    """Of the pool each has the shared pages and an even part of the rest."""
    capacity = GroupCapacity(group_id="g", num_pages=20, page_size=PAGE, seats=8, max_model_len=1000)
    assert capacity.most_pages(submission("a", 100, 10, n=3), 3) == 6 + 3
    assert capacity.most_pages(submission("a", 100, 13, n=3), 3) == 6 + 3  # the last token needs no page
    assert capacity.most_pages(submission("a", 100, 14, n=3), 3) == 6 + 3 * 2
    assert capacity.most_pages(submission("a", 100, 900, n=3), 3) == 6 + 3 * 4
    assert capacity.most_pages(submission("a", 100, 900, n=3), 1) == 6 + 4
    assert capacity.most_pages(submission("a", 100, 900), 1) == 20
