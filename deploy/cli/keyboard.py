"""Single keys from a terminal, without Enter."""

import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WaitForKey = Callable[[float], str]


@contextmanager
def single_keys() -> Iterator[WaitForKey]:
    """Yields a function that waits so many seconds for a key; "" is none. Ctrl-C stays what it is.

    Where standard input is no terminal, or is at its end, no key ever comes.
    """
    if not sys.stdin.isatty():
        yield _only_wait
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield _read_key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _read_key(timeout_s: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return sys.stdin.read(1) if ready else ""


def _only_wait(timeout_s: float) -> str:
    select.select([], [], [], timeout_s)
    return ""
