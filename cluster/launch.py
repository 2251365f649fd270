"""Starting and stopping a cluster on a Ray that this process is connected to. Blocking; what is started is ended."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.admission_actor import AdmissionActor
from cluster.cluster_spec import ADMISSION_NAME, ENGINE_PREFIX, ClusterSpec, GroupSpec, TokenAddress, namespace_of
from cluster.engine_actor import EngineActor
from cluster.errors import ClusterFailed
from cluster.placement import choose_nodes, live_nodes
from cluster.ray_errors import ray_error_text

log = logging.getLogger(__name__)

Progress = Callable[[str], None]

_OPEN_CALLS = 1000
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.25
_SIGN_OF_LIFE_S = 5.0


class ClusterHandle:
    """A running cluster, held by the process that started it: engines and ranks end with that process."""

    def __init__(self, spec: ClusterSpec, admission: Any, engines: Sequence[Any]) -> None:
        self.cluster_id = spec.cluster_id
        self.addresses: list[TokenAddress] = []
        self._admission = admission
        self._engines = list(engines)
        self._ends: list[Any] = []
        self._stopped = False

    def ping(self, timeout_s: float = 10.0) -> dict[str, Any]:
        """Admission's status, after a step of every engine. Raises ClusterFailed."""
        try:
            status: dict[str, Any] = ray.get(self._admission.status.remote(), timeout=timeout_s)
        except (RayError, GetTimeoutError) as error:
            raise ClusterFailed(f"the cluster does not answer: {ray_error_text(error)}") from error
        return status

    def wait_for_failure(self, timeout_s: float) -> str | None:
        """Why an engine has ended; None when all were well for `timeout_s`."""
        done, _ = ray.wait(self._ends, timeout=timeout_s)
        if not done:
            return None
        try:
            return str(ray.get(done[0]))
        except RayError as error:
            return f"an engine is lost: {ray_error_text(error)}"

    def stop(self) -> None:
        """End engines, ranks, placement and admission. Idempotent."""
        if self._stopped or not ray.is_initialized():
            return
        self._stopped = True
        stops = [engine.stop.remote() for engine in self._engines]
        ray.wait(stops, num_returns=len(stops), timeout=_STOP_TIMEOUT_S)
        for actor in [*self._engines, self._admission]:
            ray.kill(actor, no_restart=True)

    def _await_ready(self, groups: Sequence[GroupSpec], on_progress: Progress) -> None:
        starts = [engine.start.remote(self._admission) for engine in self._engines]
        deadline = time.monotonic() + max(group.ready_timeout_s for group in groups) + _STOP_TIMEOUT_S
        pending, told = list(starts), ""
        while pending:
            done, pending = ray.wait(pending, timeout=_POLL_S)
            for start in done:
                self.addresses.append(_result(start))
            if pending and time.monotonic() > deadline:
                raise ClusterFailed(f"{len(pending)} of {len(starts)} engines were not ready in time")
            if (text := self._progress()) not in (told, ""):
                told = text
                on_progress(text)
        self._ends = [engine.ended.remote() for engine in self._engines]

    def _progress(self) -> str:
        try:
            texts = ray.get([engine.progress.remote() for engine in self._engines], timeout=_POLL_S * 8)
        except RayError:  # a busy engine says it next time; of a dead one its start call tells
            return ""
        return "; ".join(texts)


def start_cluster(spec: ClusterSpec, on_progress: Progress = lambda _: None) -> ClusterHandle:
    """Start admission and every group; returns when all can serve. Raises CannotPlace, ClusterFailed.

    Remains of a cluster with the same id are ended first; one that lives is left alone, and this fails. Ray must be
    initialised.
    """
    groups = spec.groups()
    if _lives(spec.namespace):
        raise ClusterFailed("another server runs on this Ray; stop that first, or start this one on a Ray of its own")
    nodes = choose_nodes(groups, live_nodes())
    stop_cluster(spec.cluster_id)
    admission = (
        ray.remote(AdmissionActor)
        .options(
            name=ADMISSION_NAME,
            namespace=spec.namespace,
            lifetime="detached",
            num_cpus=0,
            max_restarts=0,
            max_concurrency=_OPEN_CALLS,
        )
        .remote(spec.policy, spec.log)
    )
    engines = [_start_engine(spec, group, node) for group, node in zip(groups, nodes, strict=True)]
    handle = ClusterHandle(spec, admission, engines)
    try:
        handle._await_ready(groups, on_progress)
    except BaseException:
        handle.stop()
        raise
    return handle


def stop_cluster(cluster_id: str) -> None:
    """End whatever a cluster of this id has left on this Ray, whoever started it. Idempotent."""
    for _, actor in _named_actors(namespace_of(cluster_id)):
        ray.kill(actor, no_restart=True)


def _lives(namespace: str) -> bool:
    """Whether an engine of a cluster answers: engines end with the process that started them."""
    for name, actor in _named_actors(namespace):
        if name.startswith(ENGINE_PREFIX):
            try:
                ray.get(actor.progress.remote(), timeout=_SIGN_OF_LIFE_S)
            except RayError:  # it is ending
                continue
            return True
    return False


def _named_actors(namespace: str) -> Iterator[tuple[str, Any]]:
    for named in ray.util.list_named_actors(all_namespaces=True):
        if named["namespace"] == namespace:
            try:
                yield named["name"], ray.get_actor(named["name"], namespace=namespace)
            except ValueError:  # it ended meanwhile
                continue


def _start_engine(spec: ClusterSpec, group: GroupSpec, node_id: str | None) -> Any:
    where = {} if node_id is None else {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}
    return (
        ray.remote(EngineActor)
        .options(
            name=f"{ENGINE_PREFIX}{group.group_id}",
            namespace=spec.namespace,
            num_cpus=0,
            max_restarts=0,
            max_concurrency=_OPEN_CALLS,
            **where,
        )
        .remote(group)
    )


def _result(call: Any) -> TokenAddress:
    try:
        address: TokenAddress = ray.get(call)
    except RayError as error:
        raise ClusterFailed(ray_error_text(error)) from error
    return address
