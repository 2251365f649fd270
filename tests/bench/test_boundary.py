"""The boundary report and its requests: exactly as long as the pool, and each what it is alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.boundary import FIRST_ID, BoundaryBench, make_report
from bench.chat import ChatRun, ChatState
from bench.race import Race
from bench.tiny_model import TinyModel, write_tiny_model


@pytest.fixture
def bench(tmp_path: Path) -> BoundaryBench:
    folder = write_tiny_model(tmp_path / "m", TinyModel(num_layers=1, vocab_size=300))
    return BoundaryBench(model="m", model_dir=folder, pool_tokens=512)


def race(bench: BoundaryBench, parks: int) -> Race:
    runs = [
        ChatRun(
            chat=chat,
            state=ChatState.DONE,
            status=200,
            text=f"text of {chat.name}",
            prompt_tokens=len(chat.prompt),
            completion_tokens=chat.max_tokens,
            finish_reason="length",
            parks=parks,
        )
        for chat in bench.requests()
    ]
    return Race(runs=tuple(runs), wall_s=1.0)


def test_requests_fill_the_pool_to_the_last_slot_and_one_more_token(bench: BoundaryBench) -> None:
    requests = bench.requests()
    assert {len(chat.prompt) + chat.max_tokens for chat in requests} == {512}
    assert len({chat.prompt for chat in requests}) == 4
    assert all(FIRST_ID <= token < 300 for chat in requests for token in chat.prompt)
    assert requests[0].path == "/v1/completions"
    assert requests[0].body("m")["prompt"] == list(requests[0].prompt)
    assert BoundaryBench(model="m", model_dir=Path()).prompt_tokens == (7900, 7900, 3900, 3900)


def test_a_good_run_holds(bench: BoundaryBench) -> None:
    assert make_report(bench, race(bench, 0), race(bench, 2)).held


def cut(run: ChatRun) -> None:
    run.finish_reason = "stop"


def shorten(run: ChatRun) -> None:
    run.prompt_tokens -= 1


def change(run: ChatRun) -> None:
    run.text += "!"


@pytest.mark.parametrize(
    ("spoil", "missed"),
    [
        (cut, "requests that ended in full"),
        (shorten, "requests of exactly 512 tokens"),
        (change, "requests whose text is that of their solo run"),
    ],
)
def test_each_fault_misses_its_own_bar(bench: BoundaryBench, spoil: Callable[[ChatRun], None], missed: str) -> None:
    together = race(bench, 2)
    spoil(together.runs[1])
    report = make_report(bench, race(bench, 0), together)
    assert [bar.name for bar in report.bars if not bar.held] == [missed]


def test_without_a_park_the_pool_was_no_boundary(bench: BoundaryBench) -> None:
    report = make_report(bench, race(bench, 0), race(bench, 0))
    assert [bar.name for bar in report.bars if not bar.held] == ["parks"]


def test_a_park_that_dropped_its_pages_is_no_copy(bench: BoundaryBench) -> None:
    together = race(bench, 2)
    together.runs[3].recomputes = 1
    report = make_report(bench, race(bench, 0), together)
    assert [bar.name for bar in report.bars if not bar.held] == ["parks by recompute"]
