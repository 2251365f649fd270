"""The device pool: which page ids are free. One id means the same page on every rank of a group."""

from typing import ClassVar

from kv.ids import IdPool


class PagePool(IdPool):
    """`num_pages` pages. Knows nothing of sequences or tokens: tables own pages, the pool owns the rest."""

    __slots__ = ()
    noun: ClassVar[str] = "page"

    @property
    def num_pages(self) -> int:
        return self.num_total
