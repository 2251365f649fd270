"""The record of a server, from ready to stopped."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.admin.records import living_records
from deploy.config import ServeConfig
from deploy.serve.announcement import Announcement
from deploy.serve.plan import ServerPlan, make_plan


@pytest.fixture
def plan(model_dir: Path) -> ServerPlan:
    found, _ = make_plan(ServeConfig(model=str(model_dir), port=9000), model_dir)
    return replace(found, admin=replace(found.admin, token_file="/session/token", tls_cert="/cert.pem"))


def test_a_ready_server_is_found_until_it_stops(tmp_path: Path, plan: ServerPlan) -> None:
    announcement = Announcement(tmp_path / "records", plan)
    assert announcement.make("0.0.0.0:9001") is None
    (record,) = living_records(tmp_path / "records")
    assert (record.pid, record.admin, record.http) == (os.getpid(), "127.0.0.1:9001", "http://127.0.0.1:9000")
    assert (record.token_file, record.tls_ca, record.model) == ("/session/token", "/cert.pem", "tiny-llama")
    announcement.withdraw()
    assert living_records(tmp_path / "records") == []
    announcement.withdraw()


def test_a_server_that_never_was_ready_leaves_no_trace(tmp_path: Path, plan: ServerPlan) -> None:
    Announcement(tmp_path / "records", plan).withdraw()
    assert not (tmp_path / "records").exists()


def test_a_folder_that_cannot_be_used_is_told_with_the_flags_that_do(tmp_path: Path, plan: ServerPlan) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records").chmod(0o755)
    complaint = Announcement(tmp_path / "records", plan).make("127.0.0.1:9001")
    assert complaint is not None
    assert complaint.endswith("tell them --admin 127.0.0.1:9001 --token-file /session/token")
