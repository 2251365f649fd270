"""Ends of a bench: expected errors in one line, and a server that does not outlive a terminated bench."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from bench.failing import NOT_MEASURED, TERMINATED, one_line_errors
from bench.processes import processes
from bench.streams import StreamError
from bench.subprocess_server import ServerError

ROOT = Path(__file__).resolve().parent.parent.parent
BENCH = """
import sys
from bench.failing import one_line_errors
from bench.subprocess_server import running

sleeper = "import sys, time; print('started', file=sys.stderr); time.sleep(600)"
with one_line_errors(), running([sys.executable, "-c", sleeper, "a server of this test"], 1):
    pass
"""


@pytest.mark.parametrize("error", [StreamError("3 of 4 tokens came"), ServerError("not ready")])
def test_an_expected_error_is_one_line_and_exit_code_2(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as exit_info, one_line_errors():
        raise error
    assert exit_info.value.exit_code == NOT_MEASURED
    assert capsys.readouterr().err == f"parkade: {error}\n"


def test_the_old_handler_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with one_line_errors():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_terminated_bench_takes_its_server_along() -> None:
    with subprocess.Popen([sys.executable, "-c", BENCH], cwd=ROOT) as bench:
        server = None
        while server is None and bench.poll() is None:  # bounded by the bench's own patience
            server = next((p for p in processes() if p.parent == bench.pid), None)
        assert server is not None
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(30) == TERMINATED
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)
