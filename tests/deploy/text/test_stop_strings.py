"""Stop strings: found however the text is cut, never told in part."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.text import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    told = "".join(matcher.push(piece) for piece in pieces) + matcher.flush()
    return told, matcher.matched


def first_stop(stops: list[str], text: str) -> tuple[str, str | None]:
    """The plain reading: try every end, from left to right; the longest stop that ends there wins."""
    for end in range(1, len(text) + 1):
        here = [stop for stop in stops if text[:end].endswith(stop)]
        if here:
            longest = max(here, key=len)
            return text[: end - len(longest)], longest
    return text, None


@pytest.mark.parametrize("cut", range(len("one END two") + 1))
def test_a_stop_cut_at_any_place_is_found_and_never_told(cut: int) -> None:
    text = "one END two"
    assert run(["END"], [text[:cut], text[cut:]]) == ("one ", "END")


def test_every_cutting_of_a_text_with_two_stops_gives_the_same() -> None:
    text = "aab abab|x"
    for cuts in itertools.product([False, True], repeat=len(text) - 1):
        pieces, piece = [], text[0]
        for char, is_cut in zip(text[1:], cuts, strict=True):
            if is_cut:
                pieces.append(piece)
                piece = char
            else:
                piece += char
        assert run(["abab|", "zzz"], [*pieces, piece]) == ("aab ", "abab|")


def test_the_stop_that_completes_first_wins_even_inside_a_longer_one() -> None:
    assert run(["abcd", "bc"], list("xabcd")) == ("xa", "bc")


def test_of_stops_completing_together_the_longest_goes_whole() -> None:
    assert run(["b", "ab"], list("xab")) == ("x", "ab")


def test_only_a_possible_beginning_is_held_back() -> None:
    matcher = StopMatcher(["</end>", "abc"])
    assert matcher.push("hello ") == "hello "
    assert matcher.push("ab") == ""
    assert matcher.push("x <") == "abx "
    assert matcher.push("/en") == ""
    assert matcher.flush() == "</en"


def test_a_beginning_that_overlaps_itself_is_kept() -> None:
    matcher = StopMatcher(["aab"])
    assert matcher.push("aaa") == "a"
    assert matcher.push("b") == ""
    assert matcher.matched == "aab"


def test_nothing_comes_out_after_the_match() -> None:
    matcher = StopMatcher(["X"])
    assert matcher.push("aXb") == "a"
    assert matcher.push("more") == ""
    assert matcher.flush() == ""


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
    pieces=st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_pieces_give_what_the_plain_reading_of_the_whole_gives(stops: list[str], pieces: list[str]) -> None:
    assert run(stops, pieces) == first_stop(stops, "".join(pieces))


@given(stop=st.text("ab", min_size=1, max_size=4), pieces=st.lists(st.text("abc", max_size=5), max_size=8))
def test_what_is_held_back_is_always_a_beginning_of_a_stop(stop: str, pieces: list[str]) -> None:
    matcher = StopMatcher([stop])
    told = ""
    for index, piece in enumerate(pieces):
        told += matcher.push(piece)
        if matcher.matched is not None:
            return
        held = "".join(pieces[: index + 1])[len(told) :]
        assert stop.startswith(held)
        assert held != stop
