"""What can go wrong with an arena.

WorkerError
  ArenaError
    NoHostMemory    the budget or the system has no room for the slots asked for
    WrongChecksum   a slot does not hold what was written to it
    SegmentTaken    the name belongs to a living process
"""

from workers.errors import WorkerError


class ArenaError(WorkerError):
    """Host memory for parked pages cannot do what is asked."""


class NoHostMemory(ArenaError):
    """The message gives what was asked for, what is in use, and the bound."""


class WrongChecksum(ArenaError):
    """The message names the slot and both checksums; `index` is the slot's place among those that were to be read."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class SegmentTaken(ArenaError):
    """The message names the file."""
