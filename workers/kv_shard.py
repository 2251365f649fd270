"""One rank's KV pool, as pages of bytes. What lies inside a page is the backend's affair.

A page of one rank is contiguous over layers, keys and values, so parking it is one copy.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]


class KvShard(Protocol):
    """Copies whole pages between the pool and rows of host memory [slots, page_bytes]."""

    page_bytes: int
    num_pages: int

    def copy_out(self, page_ids: Int64, host: Bytes, slots: Int64) -> None:
        """Pool page page_ids[i] to host row slots[i]."""
        ...

    def copy_in(self, host: Bytes, slots: Int64, page_ids: Int64) -> None:
        """Host row slots[i] to pool page page_ids[i]."""
        ...


class HostKvShard:
    """A pool in ordinary memory, given as any page-major numpy array [num_pages, ...]; untouched pages cost nothing."""

    def __init__(self, pool: npt.NDArray[np.generic]) -> None:
        self.num_pages = pool.shape[0]
        self._pages: Bytes = pool.reshape(pool.shape[0], -1).view(np.uint8)
        self.page_bytes = self._pages.shape[1]

    def copy_out(self, page_ids: Int64, host: Bytes, slots: Int64) -> None:
        for page, slot in zip(page_ids.tolist(), slots.tolist(), strict=True):
            host[slot] = self._pages[page]

    def copy_in(self, host: Bytes, slots: Int64, page_ids: Int64) -> None:
        for slot, page in zip(slots.tolist(), page_ids.tolist(), strict=True):
            self._pages[page] = host[slot]


class DeviceKvShard:
    """A pool on an accelerator: pages are gathered there, then cross in one transfer."""

    def __init__(self, pool: torch.Tensor) -> None:
        self.num_pages = pool.shape[0]
        self._pages = pool.view(self.num_pages, -1).view(torch.uint8)
        self.page_bytes = self._pages.shape[1]

    def copy_out(self, page_ids: Int64, host: Bytes, slots: Int64) -> None:
        gathered = self._pages[torch.from_numpy(page_ids).to(self._pages.device)]
        host[slots] = gathered.cpu().numpy()

    def copy_in(self, host: Bytes, slots: Int64, page_ids: Int64) -> None:
        pages = torch.from_numpy(host[slots]).to(self._pages.device)
        self._pages[torch.from_numpy(page_ids).to(self._pages.device)] = pages
