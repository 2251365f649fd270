"""Copies that go wrong on order: some are said to have failed, and of some that were made a byte is changed."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from scheduler.plan import CopyIn, CopyOut, CopyOutcome, CopyResult


@dataclass(slots=True)
class Faults:
    """`fail` and `spoil` are still to come. `spoil_slot` changes a byte in an arena slot; whether anybody notices
    shows when the page comes back."""

    spoil_slot: Callable[[int], None]
    fail: int = 0
    spoil: int = 0
    num_failed: int = 0
    num_spoilt: int = 0

    def verdict(self, result: CopyResult, order: CopyIn | CopyOut) -> CopyResult:
        """What the engine is told of a copy's end. The ranks' copies go on as if nothing were."""
        if result.outcome is not CopyOutcome.DONE:
            return result
        if self.fail:
            self.fail -= 1
            self.num_failed += 1
            return replace(result, outcome=CopyOutcome.FAILED, reason="failed by the bench")
        if self.spoil and isinstance(order, CopyOut):
            self.spoil -= 1
            self.num_spoilt += 1
            self.spoil_slot(order.arena_ids[-1])
        return result
