"""A running server as commands find it: the real admin interface over a played admission, and its record."""

import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from deploy.admin.records import ServerRecord, start_ticks, write_record
from deploy.admin.server import AdminServer, AdminSpec
from tests.deploy.admin.played_admission import PlayedAdmission, row

TOKEN = "a-token-of-the-tests"


@pytest.fixture
def admission() -> PlayedAdmission:
    return PlayedAdmission(
        row("aa11", slot=0),
        row("ab22", slot=1, state="queued", pages=0, group_id=None, priority=5, effective_priority=6),
        row("job-7", slot=2, owner="team", state="parked", pages=0, arena_pages=9, parks=2, waited_s=75.0),
    )


@pytest.fixture
async def variables(admission: PlayedAdmission, tmp_path: Path) -> AsyncIterator[Mapping[str, str]]:
    """The environment of a user on whose machine one server runs and has told of itself."""
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    spec = AdminSpec(cluster_id="test", host="127.0.0.1", port=0, token_file=str(token_file))
    server = AdminServer(spec, admission)
    record = ServerRecord(
        pid=os.getpid(),
        started=start_ticks(os.getpid()),
        admin=await server.start(),
        token_file=str(token_file),
        tls_ca=None,
        http="http://127.0.0.1:8000",
        model="tiny",
    )
    write_record(tmp_path / "parkade", record)
    yield {"XDG_RUNTIME_DIR": str(tmp_path), "COLUMNS": "160"}
    await server.stop()
