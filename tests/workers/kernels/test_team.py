"""The team of threads: every part exactly once, whoever does it."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numba import carray

from workers.kernels.compile import entry, kernel
from workers.kernels.pointers import int64s_at
from workers.kernels.simd import address
from workers.kernels.team import Team, run_parts

MAX_PARTS = 60


@entry
def _count_part(arguments: int, part: int, parts: int) -> None:
    counts = carray(int64s_at(arguments), MAX_PARTS + 1)
    counts[part] += 1
    counts[MAX_PARTS] = parts


@kernel("void(int64[::1], int64[::1], int64, int64)")
def _launch(words, counts, code, parts):  # type: ignore[no-untyped-def]
    run_parts(words, code, address(counts), parts)


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team(3)
    yield team
    team.stop()


def counts_after(team: Team, parts: int) -> npt.NDArray[Any]:
    counts = np.zeros(MAX_PARTS + 1, np.int64)
    _launch(team.mailbox, counts, _count_part.address, parts)
    return counts


def each_once(parts: int) -> list[int]:
    return [1] * parts + [0] * (MAX_PARTS - parts) + [parts]


def test_every_part_is_done_exactly_once(team: Team) -> None:
    for _ in range(20):
        for parts in range(1, MAX_PARTS + 1):
            assert counts_after(team, parts).tolist() == each_once(parts)


def test_helpers_that_went_to_sleep_do_not_matter(team: Team) -> None:
    sleepers = team.mailbox[24:25]  # the word at byte 192
    for _ in range(5):
        while sleepers[0] < 2:  # helpers sleep a tenth of a millisecond after the last job
            threading.Event().wait(0.001)
        assert counts_after(team, 7).tolist() == each_once(7)


def test_callers_at_the_same_time_each_get_all_their_parts(team: Team) -> None:
    wrong: list[list[int]] = []

    def call_often() -> None:
        for _ in range(300):
            if (counts := counts_after(team, 9).tolist()) != each_once(9):
                wrong.append(counts)

    callers = [threading.Thread(target=call_often) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_a_team_whose_helpers_ended_still_does_every_part() -> None:
    team = Team(3)
    team.stop()
    assert counts_after(team, 8).tolist() == each_once(8)
