"""The admin interface on a free loopback port over a played admission, in the test's own event loop."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from deploy.admin.server import AdminServer, AdminSpec
from deploy.admin.v1 import admin_pb2_grpc
from tests.deploy.admin.played_admission import PlayedAdmission, row

TOKEN = "a-token-of-the-tests"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def admission() -> PlayedAdmission:
    return PlayedAdmission(
        row("chatcmpl-aa11", slot=0),
        row("chatcmpl-ab22", slot=1, state="queued", pages=0, group_id=None, priority=5, effective_priority=6),
        row("job-7", slot=2, owner="team", state="parked", pages=0, arena_pages=9, parks=2, passes=1),
    )


@pytest.fixture
async def address(admission: PlayedAdmission, token_file: Path) -> AsyncIterator[str]:
    spec = AdminSpec(cluster_id="test", host="127.0.0.1", port=0, token_file=str(token_file))
    server = AdminServer(spec, admission)
    yield await server.start()
    await server.stop()


@pytest.fixture
async def channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> admin_pb2_grpc.AdminStub:
    return admin_pb2_grpc.AdminStub(channel)
