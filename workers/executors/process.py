"""An executor whose ranks are processes of this host, over the plan link. No Ray: tests, and bare machines."""

import asyncio
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from scheduler.plan import CopyResult, StepPlan, StepResult
from workers.arena.sweep import sweep_dead_segments
from workers.executors.rank_process import run_rank
from workers.executors.rank_specs import check_group
from workers.link import LinkAddress, PlanLink
from workers.spec import RankSpec

log = logging.getLogger(__name__)

_STOP_GRACE_S = 5.0
_REAP_S = 1.0

RankTarget = Callable[[RankSpec, LinkAddress, int], None]


class ProcessExecutor:
    """Made by `start`. The ranks die with the thread that started them, should it end without `stop`."""

    def __init__(self, link: PlanLink, processes: Sequence[BaseProcess], shm_path: str) -> None:
        self._link = link
        self._processes = list(processes)
        self._shm_path = shm_path
        self._stopped = False

    @classmethod
    async def start(
        cls,
        specs: Sequence[RankSpec],
        *,
        on_progress: Callable[[str], None] = lambda _: None,
        ready_timeout_s: float = 300.0,
        step_timeout_s: float = 120.0,
        target: RankTarget = run_rank,
    ) -> "ProcessExecutor":
        """Start every rank and wait until all have loaded. Raises ExecutorFailed; nothing is left running then."""
        check_group(specs)
        link = PlanLink(len(specs), step_timeout_s=step_timeout_s)
        endpoint = await link.open()
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(
                target=target,
                args=(spec, LinkAddress(endpoint=endpoint, token=link.token, rank=spec.rank), os.getpid()),
                name=f"parkade-rank-{spec.rank}",
                daemon=True,
            )
            for spec in specs
        ]
        executor = cls(link, processes, specs[0].collective.shm_path)
        try:
            for rank, process in enumerate(processes):
                process.start()
                executor._watch(rank, process)
            await link.ready(ready_timeout_s, on_progress)
        except BaseException:
            await executor.stop()
            raise
        return executor

    @property
    def pids(self) -> list[int]:
        """Of the ranks, in order; empty after `stop`."""
        return [process.pid for process in self._processes if process.pid is not None]

    def listen(self, on_copy: Callable[[CopyResult], None]) -> None:
        """Once, before the first plan that copies: who is called when a copy has ended on every rank."""
        self._link.listen(on_copy)

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        """Send `plan` to every rank. The future raises ExecutorFailed."""
        return self._link.submit(plan)

    async def stop(self) -> None:
        """Hang up, which ends the ranks; kill those that stay. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._link.close()
        loop = asyncio.get_running_loop()
        started = [process for process in self._processes if process.pid is not None]
        for process in started:
            loop.remove_reader(process.sentinel)
        await asyncio.to_thread(_end_all, started, self._shm_path)
        self._processes = []

    def _watch(self, rank: int, process: BaseProcess) -> None:
        loop = asyncio.get_running_loop()

        def died() -> None:
            loop.remove_reader(process.sentinel)
            process.join(0.1)
            self._link.fail(f"rank {rank} (pid {process.pid}) ended with exit code {process.exitcode}")

        loop.add_reader(process.sentinel, died)


def _end_all(processes: Sequence[BaseProcess], shm_path: str) -> None:
    # Sentinels, not exit codes: whoever else waits for children of this process may have taken those.
    deadline = time.monotonic() + _STOP_GRACE_S
    orderly = True
    for process in processes:
        if not wait([process.sentinel], max(0.0, deadline - time.monotonic())):
            log.warning("killing %s (pid %s), which did not end by itself", process.name, process.pid)
            process.kill()
            wait([process.sentinel])
        process.join(_REAP_S)
        orderly = orderly and process.exitcode == 0
        with suppress(ValueError):  # reaped by another: multiprocessing believes that it runs
            process.close()
    if shm_path:  # there only when rank 0 was killed before all had mapped it
        Path(shm_path).unlink(missing_ok=True)
    if not orderly:  # a rank that was killed could not remove its arena
        sweep_dead_segments()
