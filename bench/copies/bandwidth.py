"""How fast one rank moves pages to its arena and back, checksums and thread included, beside a plain memcpy.

Both touch as many bytes, on a thread of the same niceness, right after each other. Every time other pages, scattered
over a whole pool, go to other slots, scattered over a whole arena; the memcpy goes from one run of a pool to one run of
an arena, at random places too: nothing lies in a cache for either. Warm: all memory has been touched before, as in a
server that parks now and then; that is the bar's. Cold: the destination is fresh from the system for both.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from bench.streams import StreamError
from scheduler.plan import CopyOutcome
from workers.arena.arena import Arena
from workers.copier import Copier, CopyDone
from workers.kv_shard import Bytes, HostKvShard, Int64
from workers.model.memory import RankBytes

SIZES = (100, 500, 1000, 2000, 4000, 8000)
PARK, RESTORE, COLD_PARK = "park", "restore", "park, cold"
KINDS = (PARK, RESTORE, COLD_PARK)
TIMEOUT_S = 60.0


@dataclass(slots=True)
class BandwidthSamples:
    """Seconds, one a round, by (rank, tokens, kind): of the copy, and of the memcpy of the same bytes beside it."""

    copy_s: dict[tuple[int, int, str], list[float]] = field(default_factory=dict)
    memcpy_s: dict[tuple[int, int, str], list[float]] = field(default_factory=dict)

    def add(self, key: tuple[int, int, str], copy_s: float, memcpy_s: float) -> None:
        self.copy_s.setdefault(key, []).append(copy_s)
        self.memcpy_s.setdefault(key, []).append(memcpy_s)


class RankCopies:
    """One rank's pool, arena and copy thread, and two plain buffers of their sizes."""

    def __init__(self, num_pages: int, page_bytes: int, seed: int = 0) -> None:
        self.num_pages, self.page_bytes = num_pages, page_bytes
        self._draw = np.random.default_rng(seed)
        # Random bytes: zeros would share one page of memory.
        self._pool: Bytes = self._draw.integers(0, 256, (num_pages, page_bytes), np.uint8)
        self._ended: queue.SimpleQueue[CopyDone] = queue.SimpleQueue()
        self._arena = Arena(num_pages, page_bytes)
        self._copier = Copier(HostKvShard(self._pool), self._arena, self._ended.put)
        self._copy_id = 0
        self._source: Bytes = self._pool.reshape(-1).copy()
        self._target: Bytes = np.ones_like(self._source)
        self._plain = ThreadPoolExecutor(1, initializer=_be_as_nice_as, initargs=(_copy_threads(),))

    def close(self) -> None:
        self._plain.shutdown()
        self._copier.close()
        self._arena.close()

    def warm(self) -> None:
        """Every slot once, out and in."""
        every = np.arange(self.num_pages, dtype=np.int64)
        self.park(every, every)
        self.restore(every, every)
        self.free(every)

    def draw(self, count: int) -> Int64:
        """So many of all pages, or slots, scattered."""
        return self._draw.permutation(self.num_pages)[:count].astype(np.int64)

    def park(self, pages: Int64, slots: Int64) -> float:
        """Seconds from the order until its end is told. Raises `StreamError` when it fails."""
        started = time.perf_counter()
        self._copy_id += 1
        self._copier.copy_out(self._copy_id, pages, slots)
        return self._await(started)

    def restore(self, slots: Int64, pages: Int64) -> float:
        started = time.perf_counter()
        self._copy_id += 1
        self._copier.copy_in(self._copy_id, slots, pages)
        return self._await(started)

    def free(self, slots: Int64) -> None:
        self._copier.free(slots)

    def memcpy(self, count: int) -> float:
        """Seconds of a plain copy of so many pages' bytes."""
        num_bytes = count * self.page_bytes
        last = len(self._source) - num_bytes
        begins = [int(self._draw.integers(0, last + 1)) & ~63 for _ in range(2)]
        source = self._source[begins[0] : begins[0] + num_bytes]
        target = self._target[begins[1] : begins[1] + num_bytes]
        return self._on_thread(lambda: np.copyto(target, source))

    def memcpy_cold(self, count: int) -> float:
        """The same, to memory that the system has yet to give; a copy of its own size comes from there."""
        num_bytes = count * self.page_bytes
        source = self._source[:num_bytes]
        return self._on_thread(lambda: np.copyto(np.empty(num_bytes, np.uint8), source))

    def _on_thread(self, work: Callable[[], None]) -> float:
        """Seconds from handing it over until it is done, as with a copy."""
        started = time.perf_counter()
        self._plain.submit(work).result()
        return time.perf_counter() - started

    def _await(self, started: float) -> float:
        try:
            done = self._ended.get(timeout=TIMEOUT_S)
        except queue.Empty:
            raise StreamError(f"a copy has not ended within {TIMEOUT_S:g} s") from None
        seconds = time.perf_counter() - started
        if done.outcome is not CopyOutcome.DONE:
            raise StreamError(f"a copy ended as {done.outcome}: {done.reason}")
        return seconds


def _copy_threads() -> list[int]:
    """Native ids of the copy threads of this process."""
    return [each.native_id for each in threading.enumerate() if each.name == "copier" and each.native_id is not None]


def _be_as_nice_as(threads: list[int]) -> None:
    """The calling thread, on Linux, where niceness is a thread's own."""
    if threads:
        niceness = max(os.getpriority(os.PRIO_PROCESS, thread) for thread in threads)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


@contextlib.contextmanager
def rank_copies(num_pages: int, page_bytes: int) -> Iterator[RankCopies]:
    copies = RankCopies(num_pages, page_bytes)
    try:
        yield copies
    finally:
        copies.close()


def measure_bandwidth(
    ranks: tuple[RankBytes, ...], sizes: tuple[int, ...], *, page_size: int, rounds: int
) -> BandwidthSamples:
    """One rank after the other, as if each had a core of its own."""
    samples = BandwidthSamples()
    num_pages = -(-max(sizes) // page_size) + 12
    for rank in ranks:
        for tokens in sizes:
            _cold(samples, rank, tokens, num_pages, page_size)
        with rank_copies(num_pages, rank.page) as copies:
            copies.warm()
            for _ in range(rounds):
                for tokens in sizes:
                    _warm(samples, copies, (rank.rank, tokens), -(-tokens // page_size))
    return samples


def _warm(samples: BandwidthSamples, copies: RankCopies, key: tuple[int, int], count: int) -> None:
    pages, slots, back = copies.draw(count), copies.draw(count), copies.draw(count)
    memcpy_s = copies.memcpy(count)
    samples.add((*key, PARK), copies.park(pages, slots), memcpy_s)
    memcpy_s = copies.memcpy(count)
    samples.add((*key, RESTORE), copies.restore(slots, back), memcpy_s)
    copies.free(slots)


def _cold(samples: BandwidthSamples, rank: RankBytes, tokens: int, num_pages: int, page_size: int) -> None:
    """A new arena: its first copy."""
    count = -(-tokens // page_size)
    with rank_copies(num_pages, rank.page) as copies:
        memcpy_s = copies.memcpy_cold(count)
        samples.add((rank.rank, tokens, COLD_PARK), copies.park(copies.draw(count), copies.draw(count)), memcpy_s)
