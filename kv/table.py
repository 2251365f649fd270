"""A sequence's page table: page i of it holds positions [i * page_size, (i + 1) * page_size). It only grows or ends."""

from kv.geometry import pages_for
from kv.pool import PagePool


class PageTable:
    """Owner of the pages in it. `num_slots` positions fit without another page."""

    __slots__ = ("_page_ids", "_page_size", "num_slots")

    def __init__(self, page_size: int) -> None:
        self._page_ids: list[int] = []
        self._page_size = page_size
        self.num_slots = 0

    @property
    def page_ids(self) -> tuple[int, ...]:
        return tuple(self._page_ids)

    @property
    def num_pages(self) -> int:
        return len(self._page_ids)

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
        """Give every page back; returns how many."""
        page_ids = self._page_ids
        pool.free(page_ids)
        self._page_ids = []
        self.num_slots = 0
        return len(page_ids)
