"""A sequence's page table: page i of it holds positions [i * page_size, (i + 1) * page_size). It only grows or ends.

    | borrowed from a lender | own |

Whoever computes a prefix that others share hands its full pages over to a lender (`cede`); others begin with them
(`borrow`). A table reads what it has borrowed, and never gives it back to the pool: the lender does, when nobody uses
it any more.
"""

from collections.abc import Sequence

from kv.geometry import pages_for
from kv.pool import PagePool


class PageTable:
    """Owner of the pages in it after the first `num_borrowed`. `num_slots` positions fit without another page."""

    __slots__ = ("_page_ids", "_page_size", "num_borrowed", "num_slots")

    def __init__(self, page_size: int) -> None:
        self._page_ids: list[int] = []
        self._page_size = page_size
        self.num_borrowed = 0
        self.num_slots = 0

    @property
    def page_ids(self) -> tuple[int, ...]:
        return tuple(self._page_ids)

    @property
    def own_ids(self) -> tuple[int, ...]:
        return tuple(self._page_ids[self.num_borrowed :])

    @property
    def num_pages(self) -> int:
        return len(self._page_ids)

    @property
    def num_own(self) -> int:
        return len(self._page_ids) - self.num_borrowed

    def borrow(self, page_ids: Sequence[int]) -> None:
        """Begin an empty table with full pages of a lender."""
        assert not self._page_ids
        self._page_ids.extend(page_ids)
        self.num_borrowed = len(page_ids)
        self.num_slots = len(page_ids) * self._page_size

    def cede(self, count: int) -> tuple[int, ...]:
        """The first `count` own pages become a lender's, and stay in the table as borrowed ones."""
        assert count <= self.num_own
        ceded = tuple(self._page_ids[self.num_borrowed : self.num_borrowed + count])
        self.num_borrowed += count
        return ceded

    def grow(self, pool: PagePool, num_tokens: int) -> tuple[int, ...] | None:
        """Take what `num_tokens` positions lack: the new ids, or None (and nothing taken) if too few are free."""
        missing = pages_for(num_tokens, self._page_size) - len(self._page_ids)
        if missing <= 0:
            return ()
        page_ids = pool.allocate(missing)
        if page_ids is not None:
            self._page_ids.extend(page_ids)
            self.num_slots = len(self._page_ids) * self._page_size
        return page_ids

    def release(self, pool: PagePool) -> int:
        """Give every own page back and forget the borrowed ones; returns how many were given back."""
        own_ids = self._page_ids[self.num_borrowed :]
        pool.free(own_ids)
        self._page_ids = []
        self.num_borrowed = 0
        self.num_slots = 0
        return len(own_ids)
