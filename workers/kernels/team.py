"""Threads that help with one kernel at a time, woken in microseconds and without the GIL.

A job is an entry (the address of compiled code `entry(arguments, part, parts)`), its arguments and a number of parts.
The caller posts a ticket; whoever is awake, the caller among them, claims parts until none is left. A helper that comes
late finds nothing to do, so the caller never waits for one to wake up, only for parts already begun. Each part writes
outputs of its own: neither the number of threads nor their order can change a bit.

Helpers spin shortly for the next job, then sleep on a futex. Linux only; elsewhere the caller does all parts by itself.
"""

import atexit
import functools
import sys
import threading

import numpy as np

from workers.kernels.atomics import (
    add_atomic,
    call_entry,
    exchange,
    futex_wait,
    futex_wake_all,
    load_atomic,
    pause,
    sched_yield,
    store_atomic,
)
from workers.kernels.compile import kernel, part
from workers.kernels.simd import address, load_i64, store_i64

# The mailbox: words a cache line apart, as far as different threads write them.
_TICKET, _DONE, _WAKE, _SLEEPERS, _BUSY, _STOP, _ENTRY, _ARGUMENTS = 0, 64, 128, 192, 256, 320, 384, 392
_MAILBOX_WORDS = 56
_PART = 1 << 16  # a ticket: number of the job from bit 32 on, next part to claim from bit 16 on, number of parts
_HELPER_SPINS = 2000  # about 0.1 ms: a step's kernels follow one another faster, idle helpers sleep
_CALLER_SPINS = 5000


@part
def _work(mailbox):  # type: ignore[no-untyped-def]
    """Claim and do one part; whether there was one."""
    ticket = load_atomic(mailbox + _TICKET)
    index, parts = (ticket >> 16) & 0xFFFF, ticket & 0xFFFF
    if index >= parts or not exchange(mailbox + _TICKET, ticket, ticket + _PART):
        return False
    # The job cannot end before this part is done, so its description stays.
    call_entry(load_i64(mailbox + _ENTRY), load_i64(mailbox + _ARGUMENTS), index, parts)
    add_atomic(mailbox + _DONE, 1)
    return True


@kernel("void(int64[::1])")
def _help(words):  # type: ignore[no-untyped-def]
    mailbox = address(words)
    spins = 0
    while load_atomic(mailbox + _STOP) == 0:
        if _work(mailbox):
            spins = 0
        elif spins < _HELPER_SPINS:
            spins += 1
            pause()
        else:
            seen = load_atomic(mailbox + _WAKE)
            add_atomic(mailbox + _SLEEPERS, 1)
            ticket = load_atomic(mailbox + _TICKET)
            # Whoever posts after this look sees a sleeper and changes the word that is waited on.
            if (ticket >> 16) & 0xFFFF >= ticket & 0xFFFF and load_atomic(mailbox + _STOP) == 0:
                futex_wait(mailbox + _WAKE, seen)
            add_atomic(mailbox + _SLEEPERS, -1)
            spins = 0


@part
def _wake(mailbox):  # type: ignore[no-untyped-def]
    if load_atomic(mailbox + _SLEEPERS) > 0:
        add_atomic(mailbox + _WAKE, 1)
        futex_wake_all(mailbox + _WAKE)


@part
def run_parts(words, entry, arguments, parts):  # type: ignore[no-untyped-def]
    """entry(arguments, part, parts) for every part in [0, parts), with the helpers; parts < 65,536.

    If another thread uses the team at this moment, the caller does all parts by itself.
    """
    mailbox = address(words)
    if not exchange(mailbox + _BUSY, 0, 1):
        for index in range(parts):
            call_entry(entry, arguments, index, parts)
        return
    store_i64(mailbox + _ENTRY, entry)
    store_i64(mailbox + _ARGUMENTS, arguments)
    store_atomic(mailbox + _DONE, 0)
    job = (load_atomic(mailbox + _TICKET) >> 32) + 1
    store_atomic(mailbox + _TICKET, (job & 0x7FFFFFFF) << 32 | parts)
    _wake(mailbox)
    while _work(mailbox) or (load_atomic(mailbox + _TICKET) >> 16) & 0xFFFF < parts:
        pass
    spins = 0
    while load_atomic(mailbox + _DONE) < parts:
        spins += 1
        if spins < _CALLER_SPINS:
            pause()
        else:
            sched_yield()  # a helper lost its core in the middle of a part
    store_atomic(mailbox + _BUSY, 0)


@kernel("void(int64[::1])")
def _stop(words):  # type: ignore[no-untyped-def]
    store_atomic(address(words) + _STOP, 1)
    _wake(address(words))


class Team:
    """`num_threads` - 1 helpers and the calling thread. `mailbox` is what kernels take."""

    def __init__(self, num_threads: int) -> None:
        self.mailbox = np.zeros(_MAILBOX_WORDS, np.int64)
        names = [f"kernel-{i}" for i in range(1, num_threads)] if sys.platform == "linux" else []
        self._helpers = [threading.Thread(target=_help, args=(self.mailbox,), name=name, daemon=True) for name in names]
        for helper in self._helpers:
            helper.start()

    def stop(self) -> None:
        """End the helpers; a team without helpers still does all its parts."""
        _stop(self.mailbox)
        for helper in self._helpers:
            helper.join()


@functools.cache
def team_of(num_threads: int) -> Team:
    """This process's team of that size, started at first use and stopped at exit."""
    team = Team(num_threads)
    atexit.register(team.stop)
    return team
