"""`parkade serve` as a process of its own, watched from outside: its port, its processes, its files."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import psutil
import pytest

from workers.ports import free_port

DRIVER = "deploy.serve.driver"
READY_S = 240.0
END_S = 60.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One `parkade serve`. `log` holds what it printed."""

    process: "subprocess.Popen[bytes]"
    port: int
    admin_port: int
    log: IO[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def printed(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def health(self) -> dict[str, Any]:
        answer = httpx.get(f"{self.url}/health", timeout=60.0)
        assert answer.status_code == 200, answer.text
        status: dict[str, Any] = answer.json()
        return status

    def family(self) -> list[psutil.Process]:
        """The command and everything below it."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def session_dir(self) -> Path:
        """Where Ray's files and the server's sockets are."""
        commands = [member.cmdline() for member in self.family()]
        return Path(
            next(line[line.index("deploy.serve.driver") + 1] for line in commands if "deploy.serve.driver" in line)
        )

    def await_idle(self) -> None:
        """Until every page and every arena slot is free again and nobody is known any more."""
        deadline = time.monotonic() + END_S
        while True:
            status = self.health()
            groups = status["groups"]
            free = all(g["pages_free"] == g["pages_total"] and g["arena_free"] == g["arena_total"] for g in groups)
            if free and groups and not status["by_state"]:
                return
            assert time.monotonic() < deadline, f"not idle after {END_S:.0f} s: {status}"
            time.sleep(POLL_S)


@contextlib.contextmanager
def parkade_serve(
    log_dir: Path, model: Path, *options: str, ready_line: str = "curl http://"
) -> Iterator[ServerProcess]:
    """`ready_line` is printed when entered; killed with all that is below it when left, should it still run."""
    port = free_port(count=2)
    admin_port = port + 1
    ports = ("--port", str(port), "--admin-port", str(admin_port))
    command = [sys.executable, "-c", "from deploy.cli import main; main()", "serve", str(model), *ports]
    with (log_dir / f"serve-{port}.log").open("w+") as log:
        process = subprocess.Popen(
            [*command, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        server = ServerProcess(process, port, admin_port, log)
        family: list[psutil.Process] = []
        try:
            await_line(server, ready_line)
            family = server.family()
            yield server
        finally:
            if process.poll() is None:
                family = family or server.family()
                for member in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        member.kill()
            process.wait(END_S)


def await_line(server: ServerProcess, text: str) -> None:
    deadline = time.monotonic() + READY_S
    while text not in (printed := server.printed()):
        assert server.process.poll() is None, f"the server ended with {server.process.returncode}:\n{printed}"
        assert time.monotonic() < deadline, f"the server is not ready after {READY_S:.0f} s:\n{printed}"
        time.sleep(POLL_S)


def assert_gone(server: ServerProcess, family: list[psutil.Process], session: Path, shared_before: set[str]) -> None:
    """No process, port, shared-memory segment or file of the server is left."""
    _, alive = psutil.wait_procs(family, timeout=END_S)
    assert alive == []
    for port in (server.port, server.admin_port):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert {name for name in shared_memory() - shared_before if "parkade" in name} == set()
    assert not session.exists()


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The default model on two ranks, in a pool that four chats of 140 tokens overflow twice."""
    shared_before = shared_memory()
    options = ("--kv-pool-tokens", "256", "--host-ram", "256MiB", "--served-model-name", "smollm2")
    with parkade_serve(tmp_path_factory.mktemp("e2e"), smollm2_dir, *options) as running:
        yield running
        running.await_idle()
        family, session = running.family(), running.session_dir()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(END_S) == 0, running.printed()
        assert_gone(running, family, session, shared_before)
