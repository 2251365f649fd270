"""Reports out of made-up samples: which rows, which ratios, which bars, and what is written as JSON."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench import overhead, parking
from bench.chat import Chat, ChatRun, ChatState
from bench.engine import OWN_ARMS, EngineBench, make_report, pairs, serve_options
from bench.overhead import RankMemory
from bench.parking import ParkingSamples
from bench.report import Report
from bench.rounds import Samples, Work
from bench.spread import spread

WORK = Work(num_streams=(1, 8), rounds=2)
BENCH = EngineBench(model="tiny", model_dir=Path("tiny"), work=WORK)


def samples(rates: dict[str, float]) -> Samples:
    """Two rounds an arm, the second twice as fast: the machine drifted."""
    made = Samples()
    for name, rate in rates.items():
        for num_streams in WORK.num_streams:
            made.decode[name, num_streams] = [rate * num_streams, 2 * rate * num_streams]
            made.total[name, num_streams] = [rate, rate]
        made.prefill[name] = [10 * rate, 20 * rate]
    return made


def ratios(report: Report) -> dict[tuple[str, str], float]:
    return {(row.what, row.who): row.value.median for row in report.rows if row.unit == "ratio"}


def test_ratios_are_http_over_its_engine_and_own_over_peers() -> None:
    assert pairs([*OWN_ARMS, "peer"]) == [
        ("HTTP TP1", "engine TP1"),
        ("HTTP TP2", "engine TP2"),
        ("HTTP TP1", "peer"),
        ("HTTP TP2", "peer"),
        ("engine TP1", "peer"),
        ("engine TP2", "peer"),
    ]
    assert pairs(["HTTP TP2", "engine TP1"]) == []


def test_the_engine_report_holds_http_tp2_against_llama_server() -> None:
    rates = {"HTTP TP2": 40.0, "llama.cpp": 25.0}
    report = make_report(BENCH, samples(rates), list(rates))
    assert ratios(report)["decode, n=8", "HTTP TP2 / llama.cpp"] == pytest.approx(1.6)
    # 1.6 is above the bars of one stream (1.3) and of prefill (1.3), and below that of eight (1.7).
    assert [(bar.name, bar.held) for bar in report.bars] == [
        ("decode, 1 streams, against the peer", True),
        ("decode, 8 streams, against the peer", False),
        ("prefill against the peer", True),
    ]
    assert not report.held


def test_without_llama_server_there_is_no_bar() -> None:
    rates = dict.fromkeys(OWN_ARMS, 40.0)
    assert make_report(BENCH, samples(rates), list(rates)).bars == []


def test_the_pool_has_room_for_all_streams_of_the_longest_work() -> None:
    assert BENCH.stream_tokens == 513
    assert BENCH.pool_tokens == 8 * (513 + 32)
    assert serve_options(BENCH, 2, 1) == [
        *("--tensor-parallel-size", "2"),
        *("--num-threads", "1"),
        *("--kv-pool-tokens", str(BENCH.pool_tokens)),
    ]


def test_the_overhead_report_has_a_bar_for_each_promise() -> None:
    work = Work(num_streams=(8,), rounds=2, prefill_repeats=0)
    bench = EngineBench(model="tiny", model_dir=Path("tiny"), work=work)
    made = samples({"HTTP TP2": 36.0, "engine TP2": 40.0})
    memory = [
        RankMemory(name="smaller rank", resident=500.0, accounted=200.0),
        RankMemory(name="larger rank", resident=900.0, accounted=200.0),
    ]
    report = overhead.make_report(bench, made, [20.0, 31.0, 40.0], memory)
    assert [(bar.name, bar.held) for bar in report.bars] == [
        ("HTTP over engine-only, 8 streams", True),
        ("warm time to ready, s", False),
        ("smaller rank: resident memory, MiB", True),
        ("larger rank: resident memory, MiB", False),
    ]


def chat_run(name: str, *, parks: int = 0, text: str = "same", tokens: int = 700) -> ChatRun:
    return ChatRun(
        chat=Chat(name=name, question="?", max_tokens=700),
        state=ChatState.DONE,
        status=200,
        text=text,
        completion_tokens=tokens,
        parks=parks,
        finish_reason="length",
        started=10.0,
        ended=10.0 + (30 if parks else 20),
    )


def parking_samples(tight: list[ChatRun], room: list[ChatRun]) -> ParkingSamples:
    made = ParkingSamples()
    made.add("parking", tight)
    made.add("room", room)
    return made


def test_the_parking_report_gives_the_ratio_and_holds_the_texts() -> None:
    tight = [chat_run("a", parks=2), chat_run("b", parks=1)]
    report = parking.make_report("tiny", parking_samples(tight, [chat_run("a"), chat_run("b")]))
    assert ratios(report) == {("four chats, wall time", "parking / room"): pytest.approx(1.5)}
    assert report.held


@pytest.mark.parametrize(
    ("run", "missed"),
    [
        (chat_run("b", parks=1, text="other"), "different texts of one chat, at most one each"),
        (chat_run("b", parks=1, tokens=699), "chats that ended in full"),
    ],
)
def test_a_changed_or_cut_chat_misses_a_bar(run: ChatRun, missed: str) -> None:
    tight = [chat_run("a", parks=2), run]
    report = parking.make_report("tiny", parking_samples(tight, [chat_run("a"), chat_run("b")]))
    assert [bar.name for bar in report.bars if not bar.held] == [missed]


def test_no_park_in_the_tight_pool_proves_nothing() -> None:
    report = parking.make_report("tiny", parking_samples([chat_run("a")], [chat_run("a")]))
    assert [bar.name for bar in report.bars if not bar.held] == ["parks in the tight pool"]


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    report = Report(title="engine", settings={"rounds": 2})
    report.add("decode", "HTTP TP2", "tokens/s", spread([1.0, 3.0, 2.0]))
    report.write(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert set(written) == {
        *("bench", "command", "version", "commit", "machine", "settings", "facts", "rows", "bars", "held"),
    }
    row = {"what": "decode", "who": "HTTP TP2", "unit": "tokens/s", "median": 2.0, "low": 1.0, "high": 3.0}
    assert written["rows"] == [row | {"samples": [1.0, 3.0, 2.0]}]
    assert written["held"] is True


def test_a_report_prints_its_rows_and_bars() -> None:
    rates = {"HTTP TP2": 40.0, "llama.cpp": 25.0}
    out = io.StringIO()
    make_report(BENCH, samples(rates), list(rates)).print(Console(file=out, width=120))
    assert "held   decode, 1 streams, against the peer: 1.60, at least 1.30 asked" in out.getvalue()
    assert "missed decode, 8 streams, against the peer: 1.60, at least 1.70 asked" in out.getvalue()
