"""What can go wrong between ranks.

CollectiveError(RuntimeError)
├── CollectiveTimeout   a peer did not come within the bound; the collective is of no further use
└── CollectiveAborted   somebody ended it: `abort()`, a peer that timed out, or a peer that is gone
"""


class CollectiveError(RuntimeError):
    """The ranks of a group no longer move together; the group has to be rebuilt."""


class CollectiveTimeout(CollectiveError):  # the tree has one Error, its root
    """A peer did not take part within `timeout_s`."""

    def __init__(self, *, what: str, rank: int, timeout_s: float) -> None:
        super().__init__(f"rank {rank} waited {timeout_s:g} s for {what}; restart the group, or raise timeout_s")


class CollectiveAborted(CollectiveError):
    """The collective was ended while, or before, this rank used it."""

    def __init__(self, *, rank: int, reason: str) -> None:
        super().__init__(f"rank {rank}: the collective has ended ({reason}); restart the group")
