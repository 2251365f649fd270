"""The metrics page of the node that this process runs on. Ray's agent serves it, for all processes of the node."""

import asyncio

import httpx
import ray
from ray.exceptions import RayError

from deploy.gateway.metrics_page import MetricsUnavailable


class NodeMetrics:
    """Needs a process that is connected to Ray. The page is fetched anew at each `read`."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._url: str | None = None

    async def read(self) -> str:
        """Raises `MetricsUnavailable`."""
        if self._url is None:
            self._url = await asyncio.to_thread(_url_of_this_node)
        try:
            async with httpx.AsyncClient(timeout=self._timeout_s, trust_env=False) as client:
                page = await client.get(self._url)
        except httpx.HTTPError as error:
            raise MetricsUnavailable(f"the node's metrics agent does not answer: {type(error).__name__}") from error
        if page.status_code != httpx.codes.OK:
            raise MetricsUnavailable(f"the node's metrics agent answers with status {page.status_code}")
        return page.text


def _url_of_this_node() -> str:
    if not ray.is_initialized():  # to ask it would start one
        raise MetricsUnavailable("this process is not connected to Ray")
    try:
        node_id = ray.get_runtime_context().get_node_id()
        nodes = [node for node in ray.nodes() if node["NodeID"] == node_id]  # type: ignore[no-untyped-call]
    except (RayError, RuntimeError) as error:
        raise MetricsUnavailable("Ray does not say where this node's metrics are") from error
    port = nodes[0].get("MetricsExportPort", 0) if nodes else 0
    if not port:
        raise MetricsUnavailable("this node exports no metrics")
    return f"http://{nodes[0]['NodeManagerAddress']}:{port}/metrics"
