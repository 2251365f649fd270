"""A server in a process of its own: started on a free loopback port, awaited until it answers, ended in order."""

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

from workers.ports import free_port

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.05


class ServerError(RuntimeError):
    """The server did not start, or did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """`ready_s` from the start of the process until `/health` answered 200."""

    url: str
    pid: int
    model: str
    ready_s: float


def parkade_command(model: str, port: int, options: Sequence[str]) -> list[str]:
    """`parkade serve` of this very installation, whatever is first on the path."""
    run = "from deploy.cli import main; main()"
    return [sys.executable, "-c", run, "serve", model, "--host", "127.0.0.1", "--port", str(port), *options]


@contextlib.contextmanager
def parkade_server(model: str, *options: str, port: int | None = None) -> Iterator[RunningServer]:
    port = port or free_port(count=2)  # the next one is the admin interface's
    with running(parkade_command(model, port, options), port) as server:
        yield server


@contextlib.contextmanager
def running(command: Sequence[str], port: int) -> Iterator[RunningServer]:
    """Raises `ServerError` with the server's last lines when it ends before it is ready, or is not ready in time."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        started = time.perf_counter()
        process = None
        try:
            with _sigterm_deferred():
                # A session of its own: Ctrl-C reaches the bench alone, which then ends the server in order.
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            url = f"http://127.0.0.1:{port}"
            _wait_until_healthy(process, url, log)
            ready_s = time.perf_counter() - started
            yield RunningServer(url=url, pid=process.pid, model=_first_model(url), ready_s=ready_s)
        finally:
            if process is not None:
                _stop(process)


@contextlib.contextmanager
def _sigterm_deferred() -> Iterator[None]:
    """A SIGTERM that unwinds the bench waits until the new process has a name by which it can be ended."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if came:
        signal.raise_signal(signal.SIGTERM)


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: IO[str]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    with httpx.Client(timeout=5.0, trust_env=False) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerError(f"the server ended with code {process.returncode} before it was ready:\n{_last(log)}")
            with contextlib.suppress(httpx.TransportError):
                if client.get(f"{url}/health").status_code == 200:
                    return
            time.sleep(POLL_S)
    raise ServerError(f"the server was not ready within {READY_TIMEOUT_S:.0f} s:\n{_last(log)}")


def _first_model(url: str) -> str:
    answer = httpx.get(f"{url}/v1/models", timeout=30.0, trust_env=False)
    answer.raise_for_status()
    return str(answer.json()["data"][0]["id"])


def _last(log: IO[str], num_lines: int = 15) -> str:
    log.seek(0)
    return "\n".join(log.read().splitlines()[-num_lines:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM and patience; a server that does not end is a fault to be told, but not to be left behind."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ServerError(f"the server did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM and was killed") from None


def first_model_of(url: str) -> str:
    """The model a running OpenAI-compatible server names first. Raises `ServerError` when it does not answer so."""
    try:
        return _first_model(url.rstrip("/").removesuffix("/v1"))
    except (httpx.HTTPError, KeyError, IndexError, ValueError) as error:
        raise ServerError(f"{url} does not list its models: {type(error).__name__}") from error


def require_file(path: Path, what: str) -> Path:
    if not path.is_file():
        raise ServerError(f"{what} {path} is no file")
    return path
