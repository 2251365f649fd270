"""However a server ends, nothing of it is left, and nothing of another Ray is touched."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.models.convert import convert_gguf
from deploy.serve.supervisor import STOP_GRACE_S
from tests.deploy.models.conftest import write_tiny_gguf
from tests.e2e.conftest import DRIVER, END_S, assert_gone, await_line, parkade_serve, shared_memory

pytestmark = [pytest.mark.e2e, pytest.mark.ray, pytest.mark.slow]

OTHER_RAY = (
    "import ray, sys\n"
    "ray.init(address='local', num_cpus=1, include_dashboard=False, object_store_memory=80 << 20,"
    " _temp_dir=sys.argv[1], log_to_driver=False, logging_level='ERROR')\n"
    "@ray.remote\n"
    "class Counter:\n"
    "    def __init__(self): self.n = 0\n"
    "    def add(self): self.n += 1; return self.n\n"
    "counter = Counter.remote()\n"
    "for _ in sys.stdin: print(ray.get(counter.add.remote()), flush=True)\n"
)


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-model"
    folder.mkdir()
    write_tiny_gguf(tmp_path / "source.gguf")
    convert_gguf(tmp_path / "source.gguf", folder, "smollm", lambda done: None)
    return folder


class OtherRay:
    """A Ray of somebody else, with one actor that counts."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def count(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture
def other_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRay]:
    folder = Path("/tmp") / f"other-ray-{os.getpid()}"  # its sockets need a short path
    variables = dict(os.environ) | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_RAY, str(folder)],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield OtherRay(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(END_S)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_sigterm_leaves_nothing_and_another_ray_counts_on(
    tiny_folder: Path, tmp_path: Path, other_ray: OtherRay
) -> None:
    assert other_ray.count() == 1
    shared_before = shared_memory()
    with parkade_serve(tmp_path, tiny_folder, "--kv-pool-tokens", "256") as server:
        assert other_ray.count() == 2
        family, session = server.family(), server.session_dir()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(END_S) == 0, server.printed()
        assert_gone(server, family, session, shared_before)
        assert server.printed().splitlines()[-1] == "Stopped"
    assert other_ray.count() == 3


def test_ctrl_c_while_loading_ends_what_has_been_started(tiny_folder: Path, tmp_path: Path) -> None:
    shared_before = shared_memory()
    with parkade_serve(tmp_path, tiny_folder, ready_line="Ray is up") as server:
        family, session = server.family(), server.session_dir()
        assert len(family) > 3
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(END_S) == 0, server.printed()
        assert_gone(server, family, session, shared_before)


def test_a_second_ctrl_c_does_not_wait(tiny_folder: Path, tmp_path: Path) -> None:
    shared_before = shared_memory()
    with parkade_serve(tmp_path, tiny_folder, "--kv-pool-tokens", "256") as server:
        family, session = server.family(), server.session_dir()
        driver = next(member for member in family if DRIVER in member.cmdline())
        driver.suspend()  # it cannot stop in order
        server.process.send_signal(signal.SIGINT)
        await_line(server, "Stopping")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(STOP_GRACE_S / 2) == 0
        assert_gone(server, family, session, shared_before)


def test_a_killed_command_does_not_leave_its_ranks_running(tiny_folder: Path, tmp_path: Path) -> None:
    shared_before = shared_memory()
    with parkade_serve(tmp_path, tiny_folder, "--kv-pool-tokens", "256") as server:
        family, session = server.family(), server.session_dir()
        server.process.kill()
        assert_gone(server, family, session, shared_before)


def test_a_killed_rank_ends_the_server_with_one_line(tiny_folder: Path, tmp_path: Path) -> None:
    shared_before = shared_memory()
    with parkade_serve(tmp_path, tiny_folder, "--kv-pool-tokens", "256") as server:
        family, session = server.family(), server.session_dir()
        ranks = [member for member in family if "ray::RankActor" in " ".join(member.cmdline())]
        assert len(ranks) == 2
        ranks[1].kill()
        assert server.process.wait(END_S) == 1
        assert_gone(server, family, session, shared_before)
        assert server.printed().splitlines()[-1].startswith("parkade: the model's ranks are lost: rank ")


def test_a_killed_driver_is_told_and_leaves_nothing(tiny_folder: Path, tmp_path: Path) -> None:
    shared_before = shared_memory()
    with parkade_serve(tmp_path, tiny_folder, ready_line="Ray is up") as server:
        family, session = server.family(), server.session_dir()
        driver = next(member for member in family if DRIVER in member.cmdline())
        driver.kill()
        assert server.process.wait(END_S) == 1
        assert_gone(server, family, session, shared_before)
        assert server.printed().splitlines()[-1].startswith("parkade: the server's driver process died while loading")
