"""What spawned test processes run. Apart from the tests, so that a child need not import what only they need."""

import asyncio
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from tests.workers.executors.plans import stages
from workers.collective import open_collective
from workers.executors import ProcessExecutor, specs_of_group
from workers.spec import RankSpec


def count_calls(rank: int, pipe: Connection, specs: dict[bool, RankSpec]) -> None:
    """For park=False and True, sends for every step (the collective's own count, calls of torch.distributed).

    Each copy has ended before the next stage of the plans.
    """
    import torch.distributed as dist

    from workers.rank import Rank

    seen = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            seen += 1
            return function(*args, **kwargs)

        return call

    verbs = ("all_", "broadcast", "barrier", "reduce", "gather", "scatter", "send", "recv", "isend", "irecv", "batch_")
    for name in dir(dist):
        if name.startswith(verbs) and callable(getattr(dist, name)):
            setattr(dist, name, counted(getattr(dist, name)))
    for park, spec in specs.items():
        collective = open_collective(spec.collective, rank, spec.world_size, spec.backend)
        ends: SimpleQueue[Any] = SimpleQueue()
        runner = Rank(spec, collective, ends.put)
        counts = []
        for stage in stages(park=park):
            for plan in stage:
                before = (collective.num_calls, seen)
                runner.execute(plan)
                counts.append((collective.num_calls - before[0], seen - before[1]))
            for plan in stage:
                for _ in (*plan.copies_out, *plan.copies_in):
                    ends.get(timeout=60)
        pipe.send(counts)
        runner.close()


def start_and_hang(rank: int, pipe: Connection, spec: RankSpec) -> None:
    """A parent that will be killed while its ranks serve."""

    async def main() -> None:
        executor = await ProcessExecutor.start(specs_of_group(spec))
        pipe.send(executor.pids)
        await asyncio.Event().wait()

    asyncio.run(main())
