"""Copies that end badly on order: the ranks have made them, and the engine is told that they failed."""

from dataclasses import dataclass, replace

from scheduler.plan import CopyIn, CopyOut, CopyOutcome, CopyResult


@dataclass(slots=True)
class Faults:
    """`fail` and `spoil` are still to come; a spoilt copy is one back in, because only there a checksum is compared."""

    fail: int = 0
    spoil: int = 0
    num_failed: int = 0
    num_spoilt: int = 0

    def verdict(self, result: CopyResult, order: CopyIn | CopyOut) -> CopyResult:
        if result.outcome is not CopyOutcome.DONE:
            return result
        if self.spoil and isinstance(order, CopyIn):
            self.spoil -= 1
            self.num_spoilt += 1
            return replace(result, outcome=CopyOutcome.CORRUPT, reason="spoilt by the bench")
        if self.fail:
            self.fail -= 1
            self.num_failed += 1
            return replace(result, outcome=CopyOutcome.FAILED, reason="failed by the bench")
        return result
