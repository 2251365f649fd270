"""The demo's verdict: a good run passes, and every single thing that may go wrong fails its own claim."""

from collections.abc import Callable

import pytest

from bench.chat import Chat, ChatRun, ChatState
from bench.verdict import judge_no_parking, judge_parking


def whole(name: str, *, priority: int = 0, parks: int = 0, ended: float = 9.0) -> ChatRun:
    return ChatRun(
        chat=Chat(name=name, question="?", max_tokens=700, priority=priority),
        state=ChatState.DONE,
        status=200,
        text=f"text of {name}",
        prompt_tokens=200,
        completion_tokens=700,
        parks=parks,
        parks_seen=parks,
        resumes_seen=parks,
        finish_reason="length",
        ended=ended,
    )


def refused(name: str, error: str | None) -> ChatRun:
    return ChatRun(
        chat=Chat(name=name, question="?", max_tokens=700), state=ChatState.REFUSED, status=200, error=error, ended=3.0
    )


def good_run() -> list[ChatRun]:
    return [whole("a", parks=2), whole("b", parks=1), whole("urgent", priority=10, ended=5.0), whole("d", ended=8.0)]


ALONE = {name: whole(name) for name in ("a", "b", "urgent", "d")}


def failed_claims(runs: list[ChatRun], alone: dict[str, ChatRun] = ALONE) -> list[str]:
    return [check.claim for check in judge_parking(runs, alone) if not check.held]


def test_a_good_run_holds_all_claims() -> None:
    assert failed_claims(good_run()) == []


def spoil_length(runs: list[ChatRun]) -> None:
    runs[0].completion_tokens = 699


def spoil_reason(runs: list[ChatRun]) -> None:
    runs[0].finish_reason = "stop"


def spoil_status(runs: list[ChatRun]) -> None:
    runs[0].status = 500


def spoil_text(runs: list[ChatRun]) -> None:
    runs[1].text += " "


def spoil_overflow(runs: list[ChatRun]) -> None:
    for run in runs:
        run.parks = run.parks_seen = 0


def spoil_notice(runs: list[ChatRun]) -> None:
    runs[0].parks_seen = 1


def spoil_urgent(runs: list[ChatRun]) -> None:
    runs[2].parks = runs[2].parks_seen = 1


def spoil_order(runs: list[ChatRun]) -> None:
    runs[3].ended = 4.0


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (spoil_length, "every chat ends with 200 and its full length"),
        (spoil_reason, "every chat ends with 200 and its full length"),
        (spoil_status, "every chat ends with 200 and its full length"),
        (spoil_text, "every text is byte-equal to the same chat alone"),
        (spoil_overflow, "the pool overflowed and chats were parked"),
        (spoil_notice, "every park was announced in its stream"),
        (spoil_urgent, "the chat with priority 10 is never parked"),
        (spoil_order, "the chat with priority 10 ends first"),
    ],
)
def test_each_fault_fails_its_own_claim_and_no_other(spoil: Callable[[list[ChatRun]], None], claim: str) -> None:
    runs = good_run()
    spoil(runs)
    assert failed_claims(runs) == [claim]


def test_a_chat_that_failed_alone_proves_nothing() -> None:
    alone = ALONE | {"a": refused("a", "x")}
    alone["a"].text = "text of a"
    assert failed_claims(good_run(), alone) == ["every text is byte-equal to the same chat alone"]


def test_without_parking_overflow_must_be_refused_by_name() -> None:
    runs = [whole("a"), refused("b", "the KV pool is full"), refused("c", "KV pool full"), whole("d")]
    assert [check.held for check in judge_no_parking(runs)] == [True, True, True]


@pytest.mark.parametrize("error", [None, "internal error"])
def test_without_parking_a_refusal_without_the_reason_fails(error: str | None) -> None:
    assert [check.held for check in judge_no_parking([whole("a"), refused("b", error)])] == [True, False, True]


def test_without_parking_no_overflow_is_no_demonstration() -> None:
    assert [check.held for check in judge_no_parking([whole("a"), whole("b")])] == [False, True, True]


def test_without_parking_a_silently_short_chat_fails() -> None:
    short = whole("a")
    short.completion_tokens = 10
    assert [check.held for check in judge_no_parking([short, refused("b", "KV pool")])] == [True, True, False]
