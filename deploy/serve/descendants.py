"""Every process that came of this one, found by parentage and never by name.

A subreaper inherits its orphaned descendants, so a Ray worker whose raylet is gone is still found here. Linux only.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02


def adopt_orphans() -> None:
    """From now on orphaned descendants become children of this process instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid: int) -> None:
    """In a child, before it does anything: be ended with SIGTERM when `parent_pid` ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:  # it ended before the call
        os.kill(os.getpid(), signal.SIGTERM)


def _prctl(option: int, argument: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def descendants(pid: int) -> list[int]:
    """Live or zombie processes below `pid`, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    frontier = [pid]
    while frontier:
        frontier = [child for parent in frontier for child in children.get(parent, [])]
        found += frontier
    return found


def _parent(entry: Path) -> int | None:
    try:
        # The command in parentheses may hold spaces and parentheses itself: the fields start after the last one.
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def reap() -> None:
    """Collect every child that has ended. Only for a process that waits for no child in another way."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def wait_until_alone(timeout_s: float, *, hurry: Callable[[], bool] = lambda: False) -> bool:
    """True once no descendant is left; False after `timeout_s` or when `hurry` says so."""
    deadline = time.monotonic() + timeout_s
    while True:
        reap()
        if not descendants(os.getpid()):
            return True
        if hurry() or time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)


def end_descendants(grace_s: float) -> None:
    """SIGTERM to all, `grace_s` to end, then SIGKILL until none is left."""
    _signal_all(signal.SIGTERM)
    if wait_until_alone(grace_s):
        return
    deadline = time.monotonic() + 10.0
    while not wait_until_alone(0.2) and time.monotonic() < deadline:
        _signal_all(signal.SIGKILL)


def _signal_all(number: signal.Signals) -> None:
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
