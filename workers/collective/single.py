"""The collective of a group of one rank: nothing to add, everything is here."""

from typing import Any


class SingleCollective:
    """Counts as the others do, so that counts compare across world sizes. Arrays and tensors alike."""

    def __init__(self) -> None:
        self.rank = 0
        self.world_size = 1
        self.num_calls = 0

    def all_reduce(self, x: Any) -> None:  # noqa: ARG002  # the seam's signature
        self.num_calls += 1

    def all_gather(self, x: Any, out: Any) -> None:
        self.num_calls += 1
        out[0] = x

    def abort(self) -> None: ...

    def close(self) -> None: ...
