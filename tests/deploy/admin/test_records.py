"""How commands find a server: records of those that run, flags, and the environment."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.admin.errors import NoServer
from deploy.admin.finding import Named, find_server
from deploy.admin.records import ServerRecord, living_records, start_ticks, write_record
from deploy.config import Environment, read_environment

TOKEN = "a-token-of-the-tests"


def record_of(pid: int, **values: Any) -> ServerRecord:
    defaults: dict[str, Any] = {
        "pid": pid,
        "started": start_ticks(pid),
        "admin": "127.0.0.1:8001",
        "token_file": "/nowhere",
        "tls_ca": None,
        "http": "http://127.0.0.1:8000",
        "model": "tiny",
    }
    return ServerRecord(**(defaults | values))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return file


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return read_environment({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_record_is_read_back_and_is_its_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "parkade"
    record = record_of(os.getpid())
    file = write_record(folder, record)
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert living_records(folder) == [record]
    assert [path.name for path in folder.iterdir()] == [f"server-{os.getpid()}.json"]


def test_records_of_the_dead_are_cleared_away(tmp_path: Path) -> None:
    folder = tmp_path / "parkade"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        dead = write_record(folder, record_of(other.pid))
        assert len(living_records(folder)) == 1
        other.communicate(b"\n", timeout=60)
    reborn = write_record(folder, record_of(os.getpid(), started=1))  # its pid was given again
    torn = folder / "server-7.json"
    torn.write_text('{"pid": 7')
    assert living_records(folder) == []
    assert not any(file.exists() for file in (dead, reborn, torn))


@pytest.mark.parametrize("mode", [0o755, 0o720, 0o707])
def test_a_folder_that_others_reach_is_not_believed(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "parkade"
    write_record(folder, record_of(os.getpid()))
    folder.chmod(mode)
    assert living_records(folder) == []
    with pytest.raises(PermissionError, match="a folder of this user alone, mode 0700"):
        write_record(folder, record_of(os.getpid()))


def test_a_link_to_a_folder_is_not_believed(tmp_path: Path) -> None:
    write_record(tmp_path / "real", record_of(os.getpid()))
    (tmp_path / "parkade").symlink_to(tmp_path / "real")
    assert living_records(tmp_path / "parkade") == []


def test_the_only_server_is_found(environment: Environment, token_file: Path) -> None:
    write_record(environment.records_dir, record_of(os.getpid(), token_file=str(token_file), tls_ca="/ca.pem"))
    found = find_server(Named(), environment)
    assert (found.address, found.token, found.tls_ca) == ("127.0.0.1:8001", TOKEN, Path("/ca.pem"))
    assert TOKEN not in repr(found)


def test_no_server_is_an_error_that_shows_both_ways_out(environment: Environment) -> None:
    with pytest.raises(NoServer, match=r"no server of this user runs here .*parkade serve MODEL.*--admin HOST:PORT"):
        find_server(Named(), environment)


def test_of_several_servers_one_must_be_chosen(environment: Environment, token_file: Path) -> None:
    mine, parent = os.getpid(), os.getppid()
    write_record(environment.records_dir, record_of(mine, token_file=str(token_file)))
    write_record(environment.records_dir, record_of(parent, token_file=str(token_file), admin="127.0.0.1:9001"))
    with pytest.raises(NoServer, match=r"2 servers run here: ") as caught:
        find_server(Named(), environment)
    assert f"127.0.0.1:9001 (tiny, pid {parent})" in str(caught.value)
    assert str(caught.value).endswith("choose one by --admin HOST:PORT")
    assert find_server(Named(address="127.0.0.1:9001"), environment).address == "127.0.0.1:9001"


def test_a_server_elsewhere_needs_a_token_file(environment: Environment, token_file: Path) -> None:
    with pytest.raises(NoServer, match=r"listens at host:1: name the file .*--token-file FILE or PARKADE_ADMIN_TOKEN"):
        find_server(Named(address="host:1"), environment)
    assert find_server(Named(address="host:1", token_file=token_file), environment).token == TOKEN


def test_flags_win_over_the_environment(tmp_path: Path, token_file: Path) -> None:
    environment = read_environment(
        {"PARKADE_ADMIN": "a:1", "PARKADE_ADMIN_TOKEN_FILE": str(token_file), "PARKADE_ADMIN_TLS_CA": "/ca.pem"}
    )
    found = find_server(Named(), environment)
    assert (found.address, found.token_file, found.tls_ca) == ("a:1", token_file, Path("/ca.pem"))
    other = tmp_path / "other"
    other.write_text("another-token-of-the-tests")
    found = find_server(Named(address="[::1]:2", token_file=other, tls_ca=Path("/b.pem")), environment)
    assert (found.address, found.token_file, found.tls_ca) == ("[::1]:2", other, Path("/b.pem"))


@pytest.mark.parametrize("address", ["host", "host:", ":1", "a b:1", "host:123456", "::1:5"])
def test_an_address_that_is_none_is_refused_with_an_example(environment: Environment, address: str) -> None:
    with pytest.raises(NoServer, match=r"is no HOST:PORT, such as 127.0.0.1:8001; correct --admin"):
        find_server(Named(address=address), environment)


def test_records_lie_in_the_runtime_folder_or_else_in_one_of_the_user(tmp_path: Path) -> None:
    assert read_environment({"XDG_RUNTIME_DIR": str(tmp_path)}).records_dir == tmp_path / "parkade"
    environment = read_environment({"XDG_RUNTIME_DIR": "relative"})
    assert environment.records_dir == environment.temp_dir / f"parkade-{os.getuid()}"
