"""Faults on order: what the engine is told, and a byte changed where the pages really lie."""

from pathlib import Path

import numpy as np
import pytest

from bench.exactness.faults import Faults
from bench.exactness.spoil import arena_path, flip_bit
from scheduler.plan import CopyIn, CopyOut, CopyOutcome, CopyResult
from workers.arena.arena import Arena
from workers.arena.errors import WrongChecksum

OUT = CopyOut(copy_id=0, page_ids=(1, 2), arena_ids=(5, 6))
IN = CopyIn(copy_id=0, arena_ids=(5, 6), page_ids=(1, 2))
DONE = CopyResult(copy_id=0, outcome=CopyOutcome.DONE)


def test_without_an_order_a_result_is_as_it_is() -> None:
    assert Faults(spoil_slot=lambda slot: pytest.fail("nothing was ordered")).verdict(DONE, OUT) is DONE


def test_a_failure_strikes_the_next_good_copy_and_no_other() -> None:
    faults = Faults(spoil_slot=lambda slot: None, fail=1)
    failed = CopyResult(copy_id=0, outcome=CopyOutcome.FAILED)
    outcomes = [faults.verdict(result, IN).outcome for result in (failed, DONE, DONE)]
    assert outcomes == [CopyOutcome.FAILED, CopyOutcome.FAILED, CopyOutcome.DONE]
    assert faults.num_failed == 1


def test_only_a_copy_out_is_spoilt_and_the_engine_is_not_told() -> None:
    spoilt: list[int] = []
    faults = Faults(spoil_slot=spoilt.append, spoil=1)
    assert [faults.verdict(DONE, order) for order in (IN, OUT, OUT)] == [DONE] * 3
    assert (spoilt, faults.num_spoilt) == ([6], 1)


def test_a_changed_bit_lies_in_the_slot_and_is_found_by_its_checksum(tmp_path: Path) -> None:
    rows = np.arange(3 * 5000, dtype=np.uint64).view(np.uint8).reshape(3, -1)
    arena = Arena(700, rows.shape[1], "bench-x-1", folder=tmp_path)
    slots = np.array([3, 650, 4])
    arena.reserve(slots)
    arena.write(rows, np.array([0, 1, 2]), slots)
    flip_bit(arena_path("bench-x", 1, tmp_path), 650, at=39_999)
    back = np.zeros_like(rows)
    arena.read(np.array([3, 4]), back, np.array([0, 2]))
    assert np.array_equal(back[[0, 2]], rows[[0, 2]])
    with pytest.raises(WrongChecksum, match="slot 650"):
        arena.read(np.array([650]), back, np.array([1]))
    flip_bit(arena_path("bench-x", 1, tmp_path), 650, at=39_999)
    arena.read(np.array([650]), back, np.array([1]))
    assert np.array_equal(back, rows)
    arena.close()
