"""Ray for one server: an own local one on loopback, closed by a token, or a running one that is joined.

Import this module only in a process whose environment was made by `deploy.config.Environment`: Ray reads its settings
when it is imported.
"""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._private import parameter

from deploy.serve.descendants import end_descendants
from deploy.serve.errors import ServerFailed
from deploy.serve.plan import ServerPlan

NAMESPACE = "parkade"

# Ray replaces 127.0.0.1 by the address of the first network card; any other loopback address it keeps.
_LOOPBACK = "127.0.0.2"
# Nothing of size goes through Ray's object store: this is its smallest. It lies beside the session: in /dev/shm, which
# parked pages may fill, its file would have no memory the moment that somebody writes there, and that is a SIGBUS.
_OBJECT_STORE_BYTES = 80 << 20
_PROBE_S = 5.0
_SLOW_START = "timed out during startup"
_END_S = 3.0


def start_own_ray(session: Path, plan: ServerPlan, progress: Callable[[str], None]) -> None:
    """A head node in this process' charge: it dies with it. Raises `ServerFailed`."""
    try:
        _init_local(session / "ray", plan)
    except Exception as error:  # Ray raises bare ones
        if _SLOW_START not in str(error):
            raise ServerFailed(f"Ray did not start: {error}") from error
        # Ray waits 30 s for its node, whatever else the machine has to do. The second time its files are cached.
        progress("Ray was slow to start; starting it again")
        end_descendants(_END_S)
        try:
            _init_local(session / "ray2", plan)
        except Exception as again:
            raise ServerFailed(f"Ray did not start within twice 30 s, is the machine overloaded? {again}") from again


def _init_local(temp_dir: Path, plan: ServerPlan) -> None:
    with _quiet_node():
        ray.init(
            address="local",
            num_cpus=plan.tensor_parallel_size,  # one logical CPU a rank; all other actors take none
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.getLevelName(plan.log_level.upper()),
            namespace=NAMESPACE,
            _node_ip_address=_LOOPBACK,
            _temp_dir=str(temp_dir),
            _plasma_directory=str(temp_dir.parent),
            _metrics_export_port=plan.metrics_port,
        )


@contextmanager
def _quiet_node() -> Iterator[None]:
    """Settings of a node that `ray.init` does not pass on, though `ray start` does.

    Its agent listens on the fixed port 52365 otherwise: two Rays on one machine take it from each other, and the second
    one waits for seconds. The autoscaler's monitor and the log monitor are processes for nothing: what our actors log
    comes through a pipe.
    """
    whole = parameter.RayParams
    settings: dict[str, Any] = {
        "dashboard_agent_listen_port": 0,
        "no_monitor": True,
        "include_log_monitor": False,
    }
    parameter.RayParams = partial(whole, **settings)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        parameter.RayParams = whole  # type: ignore[misc]


def join_ray(address: str, log_level: str) -> None:
    """Raises `ServerFailed` soon when nobody answers: Ray itself would try a dead address for minutes.

    Its metrics page is where it was started to have it (`ray start --metrics-export-port`); `metrics_url` finds it.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_PROBE_S).close()
    except OSError as error:
        raise ServerFailed(f"no Ray answers at {address}: {error}; start one or leave out --ray-address") from error
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.getLevelName(log_level.upper()),
            namespace=NAMESPACE,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ServerFailed(f"Ray at {address} could not be joined: {error}") from error


def metrics_url() -> str:
    """The Prometheus page of the node that this process is connected to; "" if it has none."""
    here = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    node: dict[str, Any] = next((node for node in nodes if node["NodeID"] == here), {})
    port = node.get("MetricsExportPort") or 0
    return f"http://{node['NodeManagerAddress']}:{port}/metrics" if port > 0 else ""
