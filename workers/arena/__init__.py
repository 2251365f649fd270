"""A rank's host memory for parked pages: named, bounded, checked, and given back."""

from workers.arena.arena import Arena
from workers.arena.budget import NO_BUDGET, BudgetSpec
from workers.arena.errors import ArenaError, NoHostMemory, SegmentTaken, WrongChecksum
from workers.arena.sweep import sweep_dead_segments

__all__ = [
    "NO_BUDGET",
    "Arena",
    "ArenaError",
    "BudgetSpec",
    "NoHostMemory",
    "SegmentTaken",
    "WrongChecksum",
    "sweep_dead_segments",
]
