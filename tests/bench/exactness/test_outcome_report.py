"""What exactness tells: counts, the place of a difference, and a bar for each thing that must have happened."""

import pytest

from bench.chat import Chat, ChatRun
from bench.exactness.bank import make_bank, submission_of
from bench.exactness.outcome import Outcome, first_difference
from bench.exactness.over_http import HttpPark
from bench.exactness.report import make_report
from bench.local_group import Choice, Stream
from scheduler.messages import (
    Finished,
    FinishReason,
    ParkFailed,
    ParkMode,
    ParkReason,
    Restored,
    TokenEvent,
)
from tests.engine_events import LOAD, parked

ENTRY = make_bank(size=1, prompt_tokens=(3, 3), vocab_size=100)[0]


def stream(tokens: list[int], finish: FinishReason) -> Stream:
    made = Stream(submission=submission_of(ENTRY, "r", 3), started=0.0, choices=[Choice()])
    made.take(TokenEvent(request_id="r", tokens=tuple(tokens), finish=finish, error="lost"), 1.0)
    return made


@pytest.mark.parametrize(
    ("tokens", "finish", "differing"),
    [
        ([1, 2, 3], FinishReason.LENGTH, []),
        ([1, 2, 4], FinishReason.LENGTH, ["x: differs at token 2 of 3"]),
        ([1, 2], FinishReason.LENGTH, ["x: differs at token 2 of 3"]),
        ([1, 2], FinishReason.CANCELLED, []),
        ([2], FinishReason.CANCELLED, ["x: differs at token 0 of 1"]),
        ([1, 2, 3], FinishReason.ERROR, ["x: ended with error after 3 tokens: lost"]),
    ],
)
def test_a_stream_is_compared_token_by_token(tokens: list[int], finish: FinishReason, differing: list[str]) -> None:
    outcome = Outcome()
    outcome.compare("x", stream(tokens, finish), 0, [1, 2, 3])
    assert outcome.differing == differing
    assert (outcome.num_streams, outcome.num_tokens) == (1, len(tokens))


def test_the_first_difference_of_a_longer_list_is_where_the_other_ends() -> None:
    assert first_difference([1, 2], [1, 2, 3]) == 2
    assert first_difference([], [1]) == 0


def test_parks_and_restores_are_counted_by_their_way() -> None:
    outcome = Outcome()
    for event in (
        parked(LOAD),
        parked(LOAD, num_pages=0, mode=ParkMode.RECOMPUTE, reason=ParkReason.PRESSURE),
        Restored(load=LOAD, request_id="r", mode=ParkMode.RECOMPUTE),
        ParkFailed(load=LOAD, request_id="r", reason="?"),
        Finished(load=LOAD, request_id="r", num_tokens=1, reason=FinishReason.STOP),
    ):
        outcome.hear(event, 0.0)
    assert {deed: count for deed, count in outcome.deeds.items() if count} == {
        "parked by copy": 1,
        "parked by recompute": 1,
        "parked by order": 1,
        "restored by recompute": 1,
        "parks failed": 1,
    }


def good_outcome() -> Outcome:
    outcome = Outcome(num_streams=9, num_tokens=99)
    outcome.deeds.update({"parked by copy": 2, "parked by recompute": 1, "copies spoilt": 1})
    outcome.deeds["wrong checksums found"] = 1
    return outcome


def test_a_good_outcome_holds_and_says_that_there_is_no_cache() -> None:
    report = make_report({}, {("tiny", 2): good_outcome()}, {})
    assert report.held
    assert "no prefix cache" in str(report.facts["note"])


@pytest.mark.parametrize("deed", ["parked by copy", "parked by recompute", "wrong checksums found"])
def test_what_was_never_done_proves_nothing(deed: str) -> None:
    outcome = good_outcome()
    outcome.deeds[deed] = 0
    assert not make_report({}, {("tiny", 2): outcome}, {}).held


def test_one_differing_stream_misses_the_bar_and_is_named() -> None:
    outcome = good_outcome()
    outcome.differing.append("schedule 3: differs")
    report = make_report({}, {("tiny", 2): outcome}, {})
    assert [bar.name for bar in report.bars if not bar.held] == ["tiny, TP2: streams that differ from their solo run"]
    assert report.facts["differing"] == ["schedule 3: differs"]


def http_run(text: str, parks: int = 0) -> ChatRun:
    return ChatRun(chat=Chat(name="a", max_tokens=3), text=text, completion_tokens=3, parks=parks)


@pytest.mark.parametrize(("text", "parks", "held"), [("abc", 1, True), ("abd", 1, False), ("abc", 0, False)])
def test_over_http_bytes_are_compared_and_the_park_must_have_been(text: str, parks: int, held: bool) -> None:
    alone = [http_run("xyz"), http_run("abc")]
    park = HttpPark(alone=alone, together=[http_run("xyz"), http_run(text, parks)])
    assert make_report({}, {}, {2: park}).held is held
