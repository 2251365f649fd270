"""The port itself: who may call, health, reflection, TLS, and the generated code."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from deploy.admin.errors import BadToken, CannotListen
from deploy.admin.server import SERVICE, AdminServer, AdminSpec
from deploy.admin.token import make_token, may_be_read_by_others, read_token
from deploy.admin.v1 import admin_pb2, admin_pb2_grpc
from tests.deploy.admin.conftest import TOKEN
from tests.deploy.admin.played_admission import PlayedAdmission

ROOT = Path(__file__).resolve().parents[3]
GENERATED = ("admin_pb2.py", "admin_pb2.pyi", "admin_pb2_grpc.py")
METADATA = (("authorization", f"Bearer {TOKEN}"),)
SOON_S = 10.0


def test_the_generated_code_is_that_of_the_proto_file(tmp_path: Path) -> None:
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, "deploy/admin/v1/admin.proto"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    made = tmp_path / "deploy/admin/v1"
    stale = [name for name in GENERATED if (made / name).read_text() != (ROOT / "deploy/admin/v1" / name).read_text()]
    assert stale == [], "run `python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. FILE`"


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", TOKEN),),
        (("authorization", f"Bearer {TOKEN}x"),),
        (("authorization", f"bearer {TOKEN}"),),
        (*METADATA, *METADATA),
    ],
)
@pytest.mark.parametrize("method", ["GetStatus", "WatchEvents"])
async def test_nothing_is_told_without_the_token(channel: grpc.aio.Channel, method: str, metadata: Any) -> None:
    stub: Any = admin_pb2_grpc.AdminStub(channel)
    request = getattr(admin_pb2, f"{method}Request")()
    call = getattr(stub, method)(request, metadata=metadata, timeout=SOON_S)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if method == "WatchEvents" else call)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "authorization: Bearer TOKEN" in (caught.value.details() or "")


async def test_a_method_that_is_none_needs_the_token_too(channel: grpc.aio.Channel) -> None:
    call = channel.unary_unary("/parkade.admin.v1.Admin/Nothing")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", timeout=SOON_S)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", timeout=SOON_S, metadata=METADATA)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_health_is_told_to_everybody(channel: grpc.aio.Channel, admission: PlayedAdmission, service: str) -> None:
    await admission.drain()  # the admin interface serves on while the server takes nothing new
    health: Any = health_pb2_grpc.HealthStub(channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=SOON_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_streams_of_health_are_not_for_everybody(channel: grpc.aio.Channel) -> None:
    health: Any = health_pb2_grpc.HealthStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health.Watch(health_pb2.HealthCheckRequest(), timeout=SOON_S).read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_reflection_lists_the_services_to_whoever_has_the_token(channel: grpc.aio.Channel) -> None:
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    call = reflection.ServerReflectionInfo(iter([question]), metadata=METADATA, timeout=SOON_S)
    answer = await call.read()
    assert {service.name for service in answer.list_services_response.service} == {
        "parkade.admin.v1.Admin",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await reflection.ServerReflectionInfo(iter([question]), timeout=SOON_S).read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_taken_port_is_refused_and_not_shared(address: str, token_file: Path) -> None:
    port = int(address.rpartition(":")[2])
    second = AdminServer(
        AdminSpec(cluster_id="test", host="127.0.0.1", port=port, token_file=str(token_file)), PlayedAdmission()
    )
    with pytest.raises(CannotListen, match=rf"cannot listen on port {port} of 127.0.0.1; .* --admin-port"):
        await second.start()


async def test_the_end_of_the_server_ends_its_watches(admission: PlayedAdmission, token_file: Path) -> None:
    spec = AdminSpec(cluster_id="test", host="127.0.0.1", port=0, token_file=str(token_file))
    server = AdminServer(spec, admission)
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        stub: Any = admin_pb2_grpc.AdminStub(channel)
        stream = stub.WatchEvents(admin_pb2.WatchEventsRequest(), metadata=METADATA, timeout=SOON_S)
        await stream.read()
        await server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert caught.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


@pytest.fixture
def certificate_and_key(tmp_path: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-subj", "/CN=parkade-test", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate), "-days", "2"]
    subprocess.run([*command, *names, *files], check=True, timeout=60, capture_output=True)
    return certificate, key


async def test_tls_is_spoken_with_a_certificate(certificate_and_key: tuple[Path, Path], token_file: Path) -> None:
    certificate, key = certificate_and_key
    spec = AdminSpec(
        cluster_id="test",
        host="127.0.0.1",
        port=0,
        token_file=str(token_file),
        tls_cert=str(certificate),
        tls_key=str(key),
    )
    server = AdminServer(spec, PlayedAdmission())
    address = await server.start()
    credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
    async with grpc.aio.secure_channel(address, credentials) as channel, grpc.aio.insecure_channel(address) as plain:
        stub: Any = admin_pb2_grpc.AdminStub(channel)
        answer = await stub.ListRequests(admin_pb2.ListRequestsRequest(), metadata=METADATA, timeout=SOON_S)
        assert answer.total == 0
        bare: Any = admin_pb2_grpc.AdminStub(plain)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await bare.ListRequests(admin_pb2.ListRequestsRequest(), metadata=METADATA, timeout=SOON_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await server.stop()


async def test_an_address_of_another_machine_is_refused(token_file: Path) -> None:
    spec = AdminSpec(cluster_id="test", host="192.0.2.1", port=1, token_file=str(token_file))
    with pytest.raises(CannotListen, match=r"port 1 of 192.0.2.1"):
        await AdminServer(spec, PlayedAdmission()).start()


# ---- the token's file


def test_a_token_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    make_token(tmp_path / "token")
    make_token(tmp_path / "other")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert len(read_token(tmp_path / "token")) == 43
    assert read_token(tmp_path / "token") != read_token(tmp_path / "other")
    assert not may_be_read_by_others(tmp_path / "token")
    (tmp_path / "other").chmod(0o640)
    assert may_be_read_by_others(tmp_path / "other")


@pytest.mark.parametrize(
    "content", [b"", b"short-token", b"one two three four five", b"\xff" * 20, b"x" * 2000, b"a\nb" * 9]
)
def test_a_file_without_a_sound_token_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(BadToken, match=r"must hold one line, 16 to 1024 printable ASCII characters") as caught:
        read_token(file)
    assert "three" not in str(caught.value)


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadToken, match=r"cannot read the admin token file .*gone: No such file"):
        read_token(tmp_path / "gone")
