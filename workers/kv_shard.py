"""One rank's KV pool, as pages of bytes. What lies inside a page is the backend's affair.

A page of one rank is contiguous over layers, keys and values. Pages are handed out in runs: rows of host memory that
can be read, or written, at once. On the host these are pages of the pool itself; an accelerator's go through pinned
memory of its own, two runs at a time, so that one crosses while the other is worked on.
"""

from collections.abc import Generator, Iterator
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
PageRows: TypeAlias = tuple[Bytes, Int64]
Mark: TypeAlias = torch.cuda.Event | None

# Long enough that what Python does between two runs is nothing, short enough to stop soon.
_HOST_RUN_BYTES = _DEVICE_RUN_BYTES = 16 << 20


class KvShard(Protocol):
    """`pages_out` and `pages_in` belong to one thread, `mark` to the one that computes.

    Both yield (rows [*, page_bytes], ids into it) for one run of `page_ids` after another, in their order. A run is
    valid until the next one is asked for. Who breaks off closes the generator; no page is written after that.
    """

    page_bytes: int
    num_pages: int

    def mark(self) -> Mark:
        """A point that comes after everything this thread has computed so far."""
        ...

    def pages_out(self, page_ids: Int64, after: Mark) -> Generator[PageRows, None, None]:
        """What these pages hold at `after`, to be read."""
        ...

    def pages_in(self, page_ids: Int64, after: Mark) -> Generator[PageRows, None, None]:
        """Where these pages' new content is to be written. It is there when the iteration has ended."""
        ...


class HostKvShard:
    """A pool in ordinary memory, given as any page-major numpy array [num_pages, ...]; untouched pages cost nothing."""

    def __init__(self, pool: npt.NDArray[np.generic]) -> None:
        self.num_pages = pool.shape[0]
        self._pages: Bytes = pool.reshape(pool.shape[0], -1).view(np.uint8)
        self.page_bytes = self._pages.shape[1]

    def mark(self) -> Mark:
        """Needs nothing: what was computed has been stored."""
        return None

    def pages_out(self, page_ids: Int64, _after: Mark) -> Generator[PageRows, None, None]:
        for run in _runs(page_ids, self.page_bytes, _HOST_RUN_BYTES):
            yield self._pages, run

    def pages_in(self, page_ids: Int64, after: Mark) -> Generator[PageRows, None, None]:
        yield from self.pages_out(page_ids, after)


class DeviceKvShard:
    """A pool on an accelerator; torch's CPU device works too, for want of one.

    Copies have a CUDA stream of their own, which waits for the mark and for nothing else. The pinned memory is bounded
    and lives here, not in the arena: to pin an arena would make all of it resident, and checksums have to be made by
    the CPU, in one pass with the copy to or from pinned memory.
    """

    def __init__(self, pool: torch.Tensor) -> None:
        self.num_pages = pool.shape[0]
        self._pages = pool.view(self.num_pages, -1).view(torch.uint8)
        self.page_bytes = self._pages.shape[1]
        self._on_cuda = pool.device.type == "cuda"
        self._stream = torch.cuda.Stream(pool.device) if self._on_cuda else None  # type: ignore[no-untyped-call]
        self._staging: list[torch.Tensor] = []

    def mark(self) -> Mark:
        return _event_of(torch.cuda.current_stream(self._pages.device)) if self._on_cuda else None

    def pages_out(self, page_ids: Int64, after: Mark) -> Generator[PageRows, None, None]:
        self._wait_for(after)
        crossing: tuple[torch.Tensor, int, Mark] | None = None
        for number, run in enumerate(_runs(page_ids, self.page_bytes, _DEVICE_RUN_BYTES)):
            started = self._start_out(self._buffer(number), run)
            if crossing is not None:
                yield _landed(*crossing)
            crossing = started
        if crossing is not None:
            yield _landed(*crossing)

    def pages_in(self, page_ids: Int64, after: Mark) -> Generator[PageRows, None, None]:
        self._wait_for(after)
        crossed: list[Mark] = []
        try:
            for number, run in enumerate(_runs(page_ids, self.page_bytes, _DEVICE_RUN_BYTES)):
                buffer = self._buffer(number)
                if number >= len(self._staging):
                    _synchronize(crossed[number - len(self._staging)])  # what lay here has left
                yield buffer.numpy(), np.arange(len(run))
                crossed.append(self._start_in(buffer, run))
        finally:  # also when it is broken off: these pages are somebody else's soon, and must not be written any more
            for event in crossed[-len(self._staging) :]:
                _synchronize(event)

    def _start_out(self, buffer: torch.Tensor, run: Int64) -> tuple[torch.Tensor, int, Mark]:
        with torch.cuda.stream(self._stream):
            ids = torch.from_numpy(run).to(self._pages.device)
            buffer[: len(run)].copy_(self._pages.index_select(0, ids), non_blocking=self._on_cuda)
            return buffer, len(run), _event_of(self._stream)

    def _start_in(self, buffer: torch.Tensor, run: Int64) -> Mark:
        with torch.cuda.stream(self._stream):
            ids = torch.from_numpy(run).to(self._pages.device)
            pages = buffer[: len(run)].to(self._pages.device, non_blocking=self._on_cuda)
            self._pages.index_copy_(0, ids, pages)
            return _event_of(self._stream)

    def _wait_for(self, after: Mark) -> None:
        if self._stream is not None and after is not None:
            self._stream.synchronize()  # a copy that was broken off may still be at work on the pinned memory
            self._stream.wait_event(after)

    def _buffer(self, number: int) -> torch.Tensor:
        """One of two, made at the first copy: most ranks' first tokens do not wait for a park."""
        if not self._staging:
            shape = max(1, _DEVICE_RUN_BYTES // self.page_bytes), self.page_bytes
            self._staging = [torch.empty(shape, dtype=torch.uint8, pin_memory=self._on_cuda) for _ in range(2)]
        return self._staging[number % len(self._staging)]


def _event_of(stream: torch.cuda.Stream | None) -> Mark:
    return None if stream is None else stream.record_event(_sleeping_event())


def _sleeping_event() -> torch.cuda.Event:
    """Whoever waits for it sleeps: its core belongs to others."""
    return torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]


def _landed(buffer: torch.Tensor, num_pages: int, event: Mark) -> PageRows:
    _synchronize(event)
    return buffer.numpy(), np.arange(num_pages)


def _synchronize(event: Mark) -> None:
    if event is not None:
        event.synchronize()


def _runs(page_ids: Int64, page_bytes: int, run_bytes: int) -> Iterator[Int64]:
    step = max(1, run_bytes // page_bytes)
    for first in range(0, len(page_ids), step):
        yield page_ids[first : first + step]
