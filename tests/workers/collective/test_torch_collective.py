"""gloo gives the bits of the shared-memory collective, counts its calls, and bounds its waits."""

from multiprocessing.connection import Connection

import numpy as np
import pytest

from tests.workers.collective.groups import RankProcess, fresh_path
from workers.collective import CollectiveAborted, CollectiveTimeout, open_collective
from workers.ports import free_port
from workers.spec import CollectiveSpec


def gloo_spec(timeout_s: float = 90.0) -> CollectiveSpec:
    return CollectiveSpec(kind="gloo", init_method=f"tcp://127.0.0.1:{free_port()}", timeout_s=timeout_s)


def reduce_over_both(rank: int, pipe: Connection, shm: CollectiveSpec, gloo: CollectiveSpec, world_size: int) -> None:
    """Sums and gathers over shm and gloo, as arrays and as tensors; sends what came out and the counts."""
    import torch

    rng = np.random.default_rng(rank)
    x = (rng.standard_normal((5, 577)) * 10.0 ** rng.integers(-6, 6, (5, 577))).astype(np.float32)
    with_arrays = [open_collective(spec, rank, world_size, "numba") for spec in (shm, gloo)]
    results = []
    for collective in with_arrays:
        total, gathered = x.copy(), np.empty((world_size, 5, 577), np.float32)
        collective.all_reduce(total)
        collective.all_gather(x, gathered)
        results += [total.tobytes(), gathered.tobytes()]
    tensor = torch.from_numpy(x.copy())
    with_arrays[1].all_reduce(tensor)  # type: ignore[arg-type]
    results.append(tensor.numpy().tobytes())
    pipe.send((results, [collective.num_calls for collective in with_arrays]))
    pipe.recv()
    for collective in with_arrays:
        collective.close()
        collective.close()


def test_gloo_and_shared_memory_agree_to_the_bit() -> None:
    shm, gloo = CollectiveSpec(kind="shm", shm_path=fresh_path(), timeout_s=90), gloo_spec()
    ranks = [RankProcess(reduce_over_both, rank, shm, gloo, 3) for rank in range(3)]
    try:
        answers = [rank.result() for rank in ranks]
        sums = {result for results, _ in answers for result in (results[0], results[2], results[4])}
        gathers = {result for results, _ in answers for result in (results[1], results[3])}
        assert len(sums) == 1
        assert len(gathers) == 1
        assert [calls for _, calls in answers] == [[2, 3]] * 3
        for rank in ranks:
            rank.pipe.send("end")
    finally:
        for rank in ranks:
            rank.end()


def lose_the_peer(rank: int, pipe: Connection, spec: CollectiveSpec) -> None:
    collective = open_collective(spec, rank, 2, "numba")
    collective.all_reduce(np.ones(4, np.float32))
    pipe.send("joined")
    pipe.recv()
    try:
        collective.all_reduce(np.ones(4, np.float32))
    except (CollectiveAborted, CollectiveTimeout) as error:
        pipe.send(type(error).__name__)


def test_a_killed_peer_ends_a_gloo_wait() -> None:
    spec = gloo_spec(timeout_s=60)
    ranks = [RankProcess(lose_the_peer, rank, spec) for rank in range(2)]
    try:
        assert [rank.result() for rank in ranks] == ["joined", "joined"]
        ranks[1].kill()
        ranks[0].pipe.send("go on")
        assert ranks[0].result() == "CollectiveAborted"
    finally:
        for rank in ranks:
            rank.end()


def test_a_group_of_one_exchanges_nothing_and_counts_all_the_same() -> None:
    collective = open_collective(CollectiveSpec(kind="shm"), 0, 1, "numba")
    x, out = np.ones((2, 3), np.float32), np.zeros((1, 2, 3), np.float32)
    collective.all_reduce(x)
    collective.all_gather(x, out)
    np.testing.assert_array_equal(out[0], x)
    assert collective.num_calls == 2


@pytest.mark.parametrize(
    ("spec", "backend", "message"),
    [
        (CollectiveSpec(kind="mpi"), "numba", "'mpi' is unknown; choose single, shm, gloo or nccl"),
        (CollectiveSpec(kind="single"), "numba", "joins 1 rank, the group has 2"),
        (CollectiveSpec(kind="shm"), "numba", "needs shm_path"),
        (CollectiveSpec(kind="nccl"), "numba", "needs a GPU backend"),
    ],
)
def test_a_spec_that_cannot_work_is_refused(spec: CollectiveSpec, backend: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_collective(spec, 0, 2, backend)
