"""What is said at the start of a server that starts all the same."""

from pathlib import Path

import pytest

from deploy.config import ServeConfig
from deploy.serve.cautions import available_shared_memory, cautions, is_loopback
from deploy.serve.plan import make_plan

PLENTY = 1 << 50


def cautions_of(model_dir: Path, shared_memory_bytes: int = PLENTY, **values: object) -> list[str]:
    plan, sizes = make_plan(ServeConfig.model_validate({"model": str(model_dir), **values}), model_dir)
    return cautions(plan, sizes, shared_memory_bytes)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a-secret-of-some-length")
    file.chmod(0o600)
    return file


def test_on_loopback_there_is_nothing_to_say(model_dir: Path) -> None:
    assert cautions_of(model_dir) == []


def test_a_door_to_the_network_wants_keys(model_dir: Path, secret: Path) -> None:
    (line,) = cautions_of(model_dir, host="0.0.0.0", port=80)
    assert line == "whoever reaches 0.0.0.0:80 may use the model and steer every request; give --api-key-file FILE"
    assert cautions_of(model_dir, host="0.0.0.0", api_key_file=secret) == []


def test_an_admin_port_to_the_network_wants_tls(model_dir: Path, secret: Path) -> None:
    (line,) = cautions_of(model_dir, admin_host="10.0.0.1")
    assert line.startswith("the admin token crosses the network of 10.0.0.1 in plain text; give --admin-tls-cert and")
    assert cautions_of(model_dir, admin_host="10.0.0.1", admin_tls_cert=secret, admin_tls_key=secret) == []


def test_secrets_that_others_may_read_are_named(model_dir: Path, secret: Path) -> None:
    assert cautions_of(model_dir, admin_token_file=secret, api_key_file=secret) == []
    secret.chmod(0o644)
    assert cautions_of(model_dir, admin_token_file=secret, api_key_file=secret) == [
        f"other users of this machine may read the {what} in {secret}; chmod 600 closes it"
        for what in ("admin token", "API keys")
    ]


def test_shared_memory_smaller_than_host_ram_is_told_with_the_way_to_more(model_dir: Path) -> None:
    (line,) = cautions_of(model_dir, 64 << 20, host_ram="1.5GiB")
    assert line.startswith(
        "/dev/shm has 64 MiB to spare, less than the 1.5 GiB of --host-ram: parks beyond it are recomputed;"
    )
    assert "`mount -o remount,size=1728M /dev/shm`, in Docker `--shm-size 1728m`" in line
    (line,) = cautions_of(model_dir, 64 << 20, host_ram="1.5GiB", recompute=False)
    assert "parks beyond it fail, and new requests get 429" in line
    assert cautions_of(model_dir, 0, host_ram=0) == []


def test_shared_memory_is_measured(tmp_path: Path) -> None:
    assert available_shared_memory(tmp_path) > 0
    assert available_shared_memory(tmp_path / "gone") == 0


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("gpu", False)],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
