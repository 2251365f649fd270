"""Sums and gathers across the ranks of one group."""

from workers.collective.errors import CollectiveAborted, CollectiveError, CollectiveTimeout
from workers.collective.opening import open_collective
from workers.collective.protocol import Collective

__all__ = ["Collective", "CollectiveAborted", "CollectiveError", "CollectiveTimeout", "open_collective"]
