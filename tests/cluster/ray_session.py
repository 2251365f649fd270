"""A driver of its own for the tests that need Ray: Ray reads its settings from the environment when it is imported.

One local Ray, one process, clusters one after the other; what was seen comes back as plain facts. `ray_orders` goes on
with the first of them.
"""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from cluster.cluster_spec import ClusterSpec
from scheduler.messages import FinishReason
from tests.cluster.ray_orders import give_orders, metrics_once_told
from tests.cluster.ray_streams import submission, until_finished
from workers.spec import CollectiveSpec, RankSpec

RAY_ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
NUM_REQUESTS = 4
PAGE_BYTES = 12_288  # a page of the tiny model on both ranks


def cluster_spec(cluster_id: str, model_dir: str, world_size: int = 2, kind: str = "shm") -> ClusterSpec:
    rank = RankSpec(
        model_dir=model_dir,
        rank=0,
        world_size=world_size,
        collective=CollectiveSpec(kind=kind),
        num_pages=16,  # of 16 tokens: two of the four requests fit at once
        arena_pages=32,
        max_model_len=160,
        max_step_tokens=64,
        max_running=8,
    )
    instance = f"{cluster_id}{os.getpid()}"
    return ClusterSpec(cluster_id=cluster_id, instance=instance, rank=rank, page_bytes=PAGE_BYTES, ready_timeout_s=300)


def run_session(rank: int, pipe: Connection, model_dir: str) -> None:
    """Sends a dict of facts for each part, in the order of `PARTS`."""
    os.environ.update(RAY_ENVIRONMENT)
    import ray

    temp_dir = tempfile.mkdtemp(prefix="pk-ray-")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 << 20,
        log_to_driver=False,
        _node_ip_address="127.0.0.2",
        _temp_dir=temp_dir,
    )
    try:
        for part in PARTS:
            pipe.send(part(model_dir))
    finally:
        ray.shutdown()
        shutil.rmtree(temp_dir, ignore_errors=True)


def serve_under_pressure(model_dir: str) -> dict[str, Any]:
    from cluster.launch import start_cluster

    told: list[str] = []
    handle = start_cluster(cluster_spec("pressure", model_dir), told.append)
    try:
        facts = asyncio.run(_stream("pressure"))
        facts |= asyncio.run(give_orders("pressure"))
        facts["ping"] = handle.ping()["by_state"]
        facts["metrics"] = metrics_once_told(2 * NUM_REQUESTS + 1)
        facts["second"] = _start_a_second(cluster_spec("pressure", model_dir))
        facts["failure"] = handle.wait_for_failure(0.0)
    finally:
        handle.stop()
        handle.stop()
    return facts | _remains() | {"progress": told}


def _start_a_second(spec: ClusterSpec) -> str:
    from cluster.errors import ClusterFailed
    from cluster.launch import start_cluster

    try:
        start_cluster(spec)
    except ClusterFailed as error:
        return str(error)
    return "started"


def lose_a_rank(model_dir: str) -> dict[str, Any]:
    from cluster.launch import start_cluster

    handle = start_cluster(cluster_spec("loss", model_dir))
    try:
        facts = asyncio.run(_kill_while_streaming("loss"))
        facts["failure"] = handle.wait_for_failure(30.0)
    finally:
        handle.stop()
    return facts | _remains()


def refuse_to_start(model_dir: str) -> dict[str, Any]:
    from cluster.errors import ClusterError
    from cluster.launch import start_cluster

    texts = {}
    for name, spec in {
        "no model": cluster_spec("bad", model_dir + "-missing", world_size=1, kind="single"),
        "no room": cluster_spec("bad", model_dir, world_size=3),
    }.items():
        try:
            start_cluster(spec)
        except ClusterError as error:
            texts[name] = f"{type(error).__name__}: {error}"
    return texts | _remains()


PARTS: tuple[Callable[[str], dict[str, Any]], ...] = (serve_under_pressure, lose_a_rank, refuse_to_start)


async def _stream(cluster_id: str) -> dict[str, Any]:
    """Every request alone, then all at once."""
    from cluster.admission_client import AdmissionClient
    from cluster.token_link import TokenClient

    admission = AdmissionClient(cluster_id)
    (address,) = await admission.addresses()
    client = await TokenClient.connect(address, "gateway")
    alone: dict[int, list[int]] = {}
    for number in range(NUM_REQUESTS):
        await admission.submit(submission("alone", number))
        alone[number] = (await until_finished(client, 1))[0][f"alone-{number}"]
    for number in range(NUM_REQUESTS):
        await admission.submit(submission("together", number))
    together, ends = await until_finished(client, NUM_REQUESTS)
    refusal = ""
    try:
        await admission.submit(submission("long", 0, num_prompt=500))
    except Exception as error:
        refusal = type(error).__name__
    await client.close()
    return {
        "alone": alone,
        "together": {number: together[f"together-{number}"] for number in range(NUM_REQUESTS)},
        "finishes": sorted(end.finish or "" for end in ends),
        "parks": sum(end.parks for end in ends),
        "refusal": refusal,
    }


async def _kill_while_streaming(cluster_id: str) -> dict[str, Any]:
    from cluster.admission_client import AdmissionClient
    from cluster.token_link import TokenClient

    admission = AdmissionClient(cluster_id)
    (address,) = await admission.addresses()
    client = await TokenClient.connect(address, "gateway")
    await admission.submit(submission("lost", 0))
    async for _ in client:
        break
    ranks = _rank_pids()
    os.kill(ranks[-1], signal.SIGKILL)
    _, ends = await until_finished(client, 1)
    await admission.submit(submission("after", 0))
    _, later = await until_finished(client, 1)
    await client.close()
    return {
        "num_ranks": len(ranks),
        "finishes": [(end.finish == FinishReason.ERROR, end.error or "") for end in [*ends, *later]],
    }


def _rank_pids() -> list[int]:
    import psutil

    pids = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "RankActor" in process.cmdline()[0]:
                pids.append(process.pid)
        except (psutil.Error, IndexError):  # it has just ended
            continue
    return sorted(pids)


def _remains() -> dict[str, Any]:
    """What is left of a stopped cluster, once Ray has had its moment to clear up."""
    import ray

    deadline = time.monotonic() + 20
    while (_rank_pids() or ray.available_resources().get("CPU") != 2.0) and time.monotonic() < deadline:
        time.sleep(0.1)
    return {
        "ranks left": _rank_pids(),
        "CPUs free": ray.available_resources().get("CPU"),
        "actors left": ray.util.list_named_actors(all_namespaces=True),
    }
