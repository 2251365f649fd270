"""The demo's picture on a terminal and in a pipe."""

import io

from rich.console import Console

from bench.chat import Chat, ChatRun, ChatState
from bench.live_table import LiveTable

RUN_CHAT = Chat(name="harbour", question="?", max_tokens=700, priority=10)


def test_in_a_pipe_each_change_of_state_is_one_plain_line() -> None:
    out = io.StringIO()
    table = LiveTable(Console(file=out, width=40), "demo", now=lambda: 2.0)
    run = ChatRun(chat=RUN_CHAT)
    with table.shown():
        for state in (ChatState.WAITING, ChatState.STREAMING, ChatState.STREAMING, ChatState.PARKED):
            run.state = state
            table.watch(run)
        run.error, run.state = "the KV pool is full [0 of 64 pages free]", ChatState.REFUSED
        table.watch(run)
    assert out.getvalue().splitlines() == [
        "   0.0 s  harbour      waiting       0/700",
        "   0.0 s  harbour      streaming     0/700",
        "   0.0 s  harbour      parked        0/700",
        "   0.0 s  harbour      refused       0/700  the KV pool is full [0 of 64 pages free]",
    ]


def test_on_a_terminal_the_table_shows_state_tokens_and_parks() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system=None)
    table = LiveTable(console, "demo", now=lambda: 2.0)
    with table.shown():
        table.watch(ChatRun(chat=RUN_CHAT, state=ChatState.PARKED, num_events=123, parks_seen=2))
    row = next(line for line in out.getvalue().splitlines() if "harbour" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["harbour", "10", "parked", "123/700", "2", ""]
