"""The gateway as a Ray Serve deployment. A shim: the application and its backend are made inside the replica.

Serve queues and refuses nothing: admission does, with the right status and Retry-After.
"""

import asyncio
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from ray import serve

from cluster.actor_log import LogSpec, open_actor_log
from cluster.admission_client import AdmissionClient
from cluster.metrics import GatewayMetrics
from cluster.token_link import TokenClient
from deploy.api_keys import load_api_keys
from deploy.gateway.app import Fittings, create_app
from deploy.gateway.limits import GatewayLimits
from deploy.gateway.node_metrics import NodeMetrics
from deploy.gateway.ray_backend import RayBackend
from deploy.gateway.served_model import load_served_model

_NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpec:
    """What a replica needs: the cluster that is running already, and the model as `load_served_model` takes it.

    `api_key_file` is read in the replica, once, when it starts; None lets everybody in.
    """

    cluster_id: str
    model_dir: str
    model_id: str
    max_model_len: int
    pool_tokens: int
    page_size: int = 1
    api_key_file: str | None = None
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    log: LogSpec = field(default_factory=LogSpec)


class Gateway:
    """One replica."""

    def __init__(self, spec: GatewaySpec) -> None:
        self._spec = spec
        open_actor_log(spec.log)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """Serve calls it once, in the event loop that will run the requests."""
        spec = self._spec
        model = await asyncio.to_thread(
            load_served_model,
            Path(spec.model_dir),
            model_id=spec.model_id,
            max_model_len=spec.max_model_len,
            pool_tokens=spec.pool_tokens,
            page_size=spec.page_size,
        )
        fittings = Fittings(
            keys=None if spec.api_key_file is None else load_api_keys(Path(spec.api_key_file)),
            meter=GatewayMetrics(),
            metrics_page=NodeMetrics(spec.limits.metrics_s),
            tells_id=False,  # Serve does, for every answer
        )
        self._backend = await connect_backend(spec.cluster_id)
        return create_app(self._backend, model, spec.limits, fittings)


async def connect_backend(cluster_id: str) -> RayBackend:
    """A started backend with a fresh gateway id. Raises `ClusterError` and the errors of `TokenClient.connect`."""
    gateway_id = f"gateway-{uuid.uuid4().hex}"
    admission = AdmissionClient(cluster_id)
    clients = [await TokenClient.connect(address, gateway_id) for address in await admission.addresses()]
    backend = RayBackend(gateway_id, admission, {client.group_id: client for client in clients})
    backend.start()
    return backend


def gateway_application(spec: GatewaySpec, **options: Any) -> serve.Application:
    """What `serve.run` takes. `options` are those of a Serve deployment, such as `num_replicas`."""
    decorate = serve.deployment(
        name="gateway",
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=_NO_LIMIT,
        max_queued_requests=-1,
    )
    deployment: serve.Deployment = decorate(serve.ingress()(Gateway))
    return deployment.options(**options).bind(spec)
