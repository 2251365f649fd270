"""Several ends of one collective: in threads of this process (the kernels run without the GIL) or in real processes."""

import multiprocessing
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from workers.collective.shm import ShmCollective
from workers.collective.shm_segment import new_segment_path

SHM = Path("/dev/shm")


def fresh_path() -> str:
    return new_segment_path(f"test-{os.getpid()}-{uuid.uuid4().hex[:8]}")


def on_all_ranks(world_size: int, act: Callable[[int], Any]) -> list[Any]:
    """`act(rank)` in one thread a rank; the results, or the first exception."""
    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(act, range(world_size)))


@contextmanager
def shm_group(world_size: int, timeout_s: float = 20.0, slot_bytes: int = 4096) -> Iterator[list[ShmCollective]]:
    path = fresh_path()
    ends = on_all_ranks(
        world_size,
        lambda rank: ShmCollective(
            path, rank, world_size, timeout_s=timeout_s, open_timeout_s=60.0, slot_bytes=slot_bytes
        ),
    )
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


class RankProcess:
    """A spawned process that runs `target(rank, pipe, *args)`."""

    def __init__(self, target: Callable[..., None], rank: int, *args: Any, daemon: bool = True) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=target, args=(rank, theirs, *args), daemon=daemon)
        self.process.start()
        theirs.close()

    def result(self, timeout_s: float = 300.0) -> Any:
        if not self.pipe.poll(timeout_s):
            raise TimeoutError(f"no result within {timeout_s} s")
        return self.pipe.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def end(self) -> None:
        self.process.join(20)
        if self.process.is_alive():
            self.kill()
        self.process.close()
        self.pipe.close()


def in_thread(act: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread
