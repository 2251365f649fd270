"""The admin interface on a port of its own: the service, health and reflection behind one gRPC server."""

from dataclasses import dataclass, field
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from cluster.actor_log import LogSpec
from deploy.admin.errors import CannotListen
from deploy.admin.guard import TokenGuard
from deploy.admin.servicer import AdminServicer, AdmissionLink
from deploy.admin.token import read_token
from deploy.admin.v1 import admin_pb2, admin_pb2_grpc

SERVICE = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name

_MAX_CALLS = 64
_MAX_REQUEST_BYTES = 64 * 1024
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # with it a second server on the port would get half of the calls
    ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", 16 * 2**20),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSpec:
    """`port` 0 is any free one. The token stands in `token_file`. TLS with both PEM files, plain text with none."""

    cluster_id: str
    host: str
    port: int
    token_file: str
    tls_cert: str | None = None
    tls_key: str | None = None
    log: LogSpec = field(default_factory=LogSpec)


class AdminServer:
    """One event loop owns it: `start`, then `stop`."""

    def __init__(self, spec: AdminSpec, admission: AdmissionLink) -> None:
        """Raises `BadToken`, and OSError for a certificate or key that cannot be read."""
        self._spec = spec
        self._servicer = AdminServicer(admission)
        self._guard = TokenGuard(read_token(Path(spec.token_file)))
        self._credentials = _server_credentials(spec)
        self._health = health_aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> str:
        """Listen; returns HOST:PORT. Raises `CannotListen`."""
        server = grpc.aio.server(interceptors=(self._guard,), options=_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS)
        admin_pb2_grpc.add_AdminServicer_to_server(self._servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        port = self._listen(server)
        await server.start()
        self._server = server
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return f"{bracketed(self._spec.host)}:{port}"

    async def stop(self) -> None:
        """End all calls, watches above all, and stop listening. Idempotent."""
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(None)

    def _listen(self, server: grpc.aio.Server) -> int:
        host, port = self._spec.host, self._spec.port
        address = f"{bracketed(host)}:{port}"
        try:
            if self._credentials is None:
                return server.add_insecure_port(address)
            return server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise CannotListen(
                f"the admin interface cannot listen on port {port} of {host}; choose another with --admin-port"
            ) from error


def bracketed(host: str) -> str:
    """As it stands before a port."""
    return f"[{host}]" if ":" in host else host


def _server_credentials(spec: AdminSpec) -> grpc.ServerCredentials | None:
    if spec.tls_cert is None or spec.tls_key is None:
        return None
    return grpc.ssl_server_credentials([(Path(spec.tls_key).read_bytes(), Path(spec.tls_cert).read_bytes())])
