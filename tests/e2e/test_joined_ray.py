"""A server on a Ray that runs already: it takes away what it brought, and leaves one that is there alone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import END_S, ServerProcess, await_line, parkade_serve

pytestmark = [pytest.mark.e2e, pytest.mark.ray, pytest.mark.model, pytest.mark.slow]

OPEN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
RUNNING_RAY = (
    "import ray, sys\n"
    "ray.init(address='local', num_cpus=2, include_dashboard=False, object_store_memory=80 << 20,"
    " _node_ip_address='127.0.0.1', _temp_dir=sys.argv[1], log_to_driver=False, logging_level='ERROR')\n"
    "print(ray.get_runtime_context().gcs_address, flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture
def ray_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in OPEN.items():
        monkeypatch.setenv(name, value)
    folder = Path("/tmp") / f"joined-ray-{os.getpid()}"  # its sockets need a short path
    command = [sys.executable, "-c", RUNNING_RAY, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(END_S)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def answer(server: ServerProcess) -> str:
    body = {"model": "smollm2", "prompt": "One, two,", "max_tokens": 8, "temperature": 0}
    asked = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60.0)
    assert asked.status_code == 200, asked.text
    return str(asked.json()["choices"][0]["text"])


def stop(server: ServerProcess) -> None:
    server.process.terminate()
    assert server.process.wait(END_S) == 0, server.printed()


def test_a_server_leaves_its_ray_as_it_was_and_a_second_one_leaves_the_first_alone(
    ray_address: str, smollm2_dir: Path, tmp_path: Path
) -> None:
    options = ("--ray-address", ray_address, "--served-model-name", "smollm2", "--kv-pool-tokens", "1024")
    with parkade_serve(tmp_path, smollm2_dir, *options) as first:
        text = answer(first)
        with parkade_serve(tmp_path, smollm2_dir, *options, ready_line="another server runs on this Ray") as second:
            assert second.process.wait(END_S) == 1
        assert answer(first) == text
        stop(first)
    port = ("--port", str(first.port))  # the later option counts
    with parkade_serve(tmp_path, smollm2_dir, *options, *port, ready_line="Ready after") as again:
        await_line(again, f"curl http://127.0.0.1:{first.port}/")
        stop(again)
