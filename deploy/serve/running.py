"""What one plan starts on Ray: admission, engine and ranks, Serve with the gateway, and the admin server.

What can starts at once: ranks load weights while Serve starts its proxy, and the admin server comes up beside the
gateway. Only the driver process imports this module: it imports Ray.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve
from ray.serve.config import HTTPOptions, ProxyLocation

from cluster.actor_log import LogSpec, open_actor_log
from cluster.cluster_spec import ClusterSpec
from cluster.errors import ClusterError
from cluster.launch import ClusterHandle, start_cluster
from deploy.admin.actor import launch_admin
from deploy.admin.server import AdminSpec
from deploy.api_keys import first_key
from deploy.gateway.deployment import GatewaySpec, gateway_application
from deploy.gateway.limits import GatewayLimits
from deploy.serve.banner import url_of
from deploy.serve.errors import ServerFailed
from deploy.serve.log_reader import log_pipe
from deploy.serve.plan import ServerPlan
from deploy.serve.ray_session import join_ray, metrics_url, start_own_ray
from scheduler.admission import AdmissionPolicy
from workers.ports import free_port
from workers.spec import CollectiveSpec, RankSpec

log = logging.getLogger(__name__)

_APPLICATION = "parkade"
_CLUSTER = "server"
_FAILURE_POLL_S = 0.5
_PING_EVERY_S = 2.0
_PING_TIMEOUT_S = 30.0
# A ping that fails is no proof: the engine says by itself why it ended. Without that word these many are.
_MAX_SILENT_PINGS = 4
_HEALTH_TIMEOUT_S = 60.0
_HEALTH_POLL_S = 0.05
# How long a stream may go on when the server is told to stop.
_DRAIN_S = 1.0
_ADMIN_START_S = 60.0
_ADMIN_STOP_S = 2.0


class RunningServer:
    """`start`, then `wait`, then `stop`; `stop` also after a `start` that raised."""

    def __init__(self, plan: ServerPlan, session: Path, progress: Callable[[str], None]) -> None:
        self._plan = plan
        self._session = session
        self._progress = progress
        self._cluster: ClusterHandle | None = None
        self._admin: Any = None
        self._deployed = False
        self._owns_ray = plan.ray_address is None
        self._log = LogSpec(level=plan.log_level, pipe=str(log_pipe(session)))
        open_actor_log(self._log)

    def start(self) -> tuple[str, str]:
        """Return when `/health` and the admin interface answer: HOST:PORT of that, and Ray's metrics page.

        Raises `ServerFailed`, `ClusterError`, and what Ray and Serve raise.
        """
        plan = self._plan
        if plan.ray_address is None:
            start_own_ray(self._session, plan, self._progress)
        else:
            join_ray(plan.ray_address, plan.log_level)
        self._progress("Ray is up")
        with ThreadPoolExecutor(1, thread_name_prefix="cluster") as thread:
            starting = thread.submit(start_cluster, cluster_spec(plan, self._log), self._progress)
            serve.start(proxy_location=ProxyLocation.HeadOnly, http_options=self._http_options())
            self._progress("Serve is up")
            self._cluster = starting.result()
        self._progress("the model is loaded")
        self._admin = launch_admin(admin_spec(plan, self._log))
        admin_address = self._admin.start.remote()
        gateway = gateway_application(gateway_spec(plan, self._log), graceful_shutdown_timeout_s=_DRAIN_S)
        self._deployed = True
        _deploy(gateway)
        self._await_health()
        return ray.get(admin_address, timeout=_ADMIN_START_S), metrics_url()

    def wait(self, stop: threading.Event) -> str | None:
        """None once `stop` is set; else, in one line, what was lost."""
        cluster = self._cluster
        assert cluster is not None
        silent, next_ping = 0, 0.0
        while not stop.is_set():
            failure = cluster.wait_for_failure(_FAILURE_POLL_S)
            if failure is not None and not stop.is_set():
                return failure
            if time.monotonic() < next_ping:
                continue
            # An idle engine hears of a dead rank only when it takes a step: a ping takes one.
            next_ping = time.monotonic() + _PING_EVERY_S
            silent = silent + 1 if (complaint := self._ping(cluster)) else 0
            if complaint and silent == _MAX_SILENT_PINGS:
                return complaint
        return None

    def _http_options(self) -> HTTPOptions:
        """On a Ray of ours the gateway itself answers on the plan's port, and Serve's proxy, which cannot be left out,
        on any other.
        """
        port = free_port(self._plan.host) if self._owns_ray else self._plan.port
        return HTTPOptions(host=self._plan.host, port=port)

    def _ping(self, cluster: ClusterHandle) -> str | None:
        try:
            cluster.ping(_PING_TIMEOUT_S)
        except ClusterError as error:
            return str(error)
        return None

    def stop(self) -> None:
        """End all that was started on Ray, and Ray itself if it is ours. Never raises: the supervisor ends the rest."""
        if not ray.is_initialized():
            return
        for end in (self._stop_admin, self._stop_gateway, self._stop_cluster, ray.shutdown):
            try:
                end()
            except Exception as error:  # each part is ended whatever became of the others
                log.warning("stopping went on after %s: %s", type(error).__name__, error)

    def _stop_admin(self) -> None:
        # Whoever watches should see an end of the stream, not a broken connection.
        if self._admin is not None:
            ray.wait([self._admin.stop.remote()], timeout=_ADMIN_STOP_S)
            ray.kill(self._admin, no_restart=True)

    def _stop_gateway(self) -> None:
        # An own Serve ends with its Ray. On a shared one our application is taken away, and Serve with the last one:
        # its proxy would keep our port.
        if self._owns_ray or not self._deployed:
            return
        serve.delete(_APPLICATION)
        if not serve.status().applications:
            serve.shutdown()  # type: ignore[no-untyped-call]

    def _stop_cluster(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()

    def _await_health(self) -> None:
        """The first answer has been through every rank."""
        deadline = time.monotonic() + _HEALTH_TIMEOUT_S
        last = "no answer"
        keys = self._plan.api_key_file
        headers = {} if keys is None else {"Authorization": f"Bearer {first_key(Path(keys))}"}
        with httpx.Client(timeout=10.0, trust_env=False, headers=headers) as client:
            while time.monotonic() < deadline:
                try:
                    answer = client.get(f"{url_of(self._plan)}/health")
                except httpx.TransportError as error:
                    last = str(error)
                else:
                    if answer.status_code == 200:
                        return
                    last = f"status {answer.status_code}"
                time.sleep(_HEALTH_POLL_S)
        raise ServerFailed(f"the server did not answer within {_HEALTH_TIMEOUT_S:.0f} s: {last}")


def _deploy(gateway: serve.Application) -> None:
    """Raises `ServerFailed` with the reason why the gateway does not start: Serve's own error names none."""
    try:
        serve.run(gateway, name=_APPLICATION)
    except RuntimeError as error:
        application = serve.status().applications.get(_APPLICATION)
        told = [deployment.message for deployment in application.deployments.values()] if application else []
        reason = next((line for text in told for line in reversed(text.splitlines()) if line.strip()), str(error))
        raise ServerFailed(f"the gateway does not start: {reason.strip()}") from error


def cluster_spec(plan: ServerPlan, log: LogSpec) -> ClusterSpec:
    rank = RankSpec(
        model_dir=plan.model_dir,
        rank=0,
        world_size=plan.tensor_parallel_size,
        collective=CollectiveSpec(kind=plan.collective),
        num_pages=plan.num_pages,
        arena_pages=plan.arena_pages,
        page_size=plan.page_size,
        max_model_len=plan.max_model_len,
        max_step_tokens=plan.max_step_tokens,
        max_running=plan.max_running,
        device=plan.device,
        dtype=plan.dtype,
        kv_dtype=plan.kv_dtype,
        backend=plan.backend,
        num_threads=plan.num_threads,
    )
    return ClusterSpec(
        cluster_id=_CLUSTER,
        rank=rank,
        policy=AdmissionPolicy(max_queued_requests=plan.max_queued_requests, max_queued_tokens=plan.max_queued_tokens),
        park=plan.park,
        recompute=plan.recompute,
        page_bytes=plan.page_bytes,
        log=log,
    )


def gateway_spec(plan: ServerPlan, log: LogSpec) -> GatewaySpec:
    return GatewaySpec(
        cluster_id=_CLUSTER,
        model_dir=plan.model_dir,
        model_id=plan.model_id,
        max_model_len=plan.max_model_len,
        pool_tokens=plan.pool_tokens,
        page_size=plan.page_size,
        api_key_file=plan.api_key_file,
        limits=GatewayLimits(max_text_requests=plan.max_queued_requests + plan.max_running),
        log=log,
    )


def admin_spec(plan: ServerPlan, log: LogSpec) -> AdminSpec:
    """The supervisor has settled the token's file."""
    assert plan.admin.token_file is not None
    return AdminSpec(
        cluster_id=_CLUSTER,
        host=plan.admin.host,
        port=plan.admin.port,
        token_file=plan.admin.token_file,
        tls_cert=plan.admin.tls_cert,
        tls_key=plan.admin.tls_key,
        log=log,
    )
