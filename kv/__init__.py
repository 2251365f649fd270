"""Which page holds which tokens. Pure Python; imports the standard library only."""

from kv.arena import ArenaSlots
from kv.errors import KVCorruption, KVError
from kv.geometry import most_pages_of_each, pages_for, pages_together, shared_pages
from kv.pool import PagePool
from kv.table import PageTable

__all__ = [
    "ArenaSlots",
    "KVCorruption",
    "KVError",
    "PagePool",
    "PageTable",
    "most_pages_of_each",
    "pages_for",
    "pages_together",
    "shared_pages",
]
