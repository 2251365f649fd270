"""Commands that run until they are left, in a terminal of their own."""

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from tests.deploy.admin.played_admission import PlayedAdmission

SOON_S = 60.0


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, stack: ExitStack, variables: Mapping[str, str], *arguments: str) -> None:
        self._fd, inner = pty.openpty()
        stack.callback(os.close, self._fd)
        code = "from deploy.cli import main; main()"
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdin=inner,
                stdout=inner,
                stderr=inner,
                env={**os.environ, **variables, "TERM": "xterm", "LINES": "30"},
                start_new_session=True,
            )
        )
        os.close(inner)
        stack.callback(self.process.kill)

    def read_until(self, text: str) -> None:
        seen, deadline = "", time.monotonic() + SOON_S
        while text not in seen:
            assert time.monotonic() < deadline, f"{text!r} did not come: {seen!r}"
            if select.select([self._fd], [], [], 0.1)[0]:
                seen += os.read(self._fd, 1 << 16).decode(errors="replace")

    def press(self, key: str) -> None:
        os.write(self._fd, key.encode())


@pytest.mark.parametrize("way", ["q", "ctrl-c"])
async def test_a_live_board_is_left_with_q_and_with_ctrl_c(variables: Mapping[str, str], way: str) -> None:
    with ExitStack() as stack:
        terminal = Terminal(stack, variables, "top", "--interval", "60")
        await asyncio.to_thread(terminal.read_until, "job-7")
        if way == "q":
            terminal.press("q")
        else:
            terminal.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(terminal.process.wait, SOON_S) == 0


async def test_a_watch_is_left_with_ctrl_c(variables: Mapping[str, str], admission: PlayedAdmission) -> None:
    admission.ring.add("pressure", "", "group-0", shortfall=3)
    with ExitStack() as stack:
        terminal = Terminal(stack, variables, "watch", "--from", "0")
        await asyncio.to_thread(terminal.read_until, "shortfall=3")
        terminal.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(terminal.process.wait, SOON_S) == 0
