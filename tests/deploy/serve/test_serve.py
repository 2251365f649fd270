"""What `serve` does before anything is started, in its order."""

import os
import socket
from pathlib import Path

import pytest

from deploy.config import ServeConfig, read_environment
from deploy.serve import supervisor
from deploy.serve.errors import CannotServe
from workers.arena.names import SEGMENT_PREFIX
from workers.arena.shared_file import SHM_FOLDER


def refusal(model_dir: Path, **values: object) -> str:
    config = ServeConfig.model_validate({"model": str(model_dir), **values})
    with pytest.raises(CannotServe) as refused:
        supervisor.serve(config, model_dir, read_environment(), show=pytest.fail)
    return str(refused.value)


def test_what_a_crash_has_left_is_gone_before_memory_is_counted(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = SHM_FOLDER / f"{SEGMENT_PREFIX}left-by-{os.getpid()}"
    left.write_bytes(bytes(4096))
    there: list[bool] = []

    def available_memory() -> int:
        there.append(left.exists())
        return 0

    monkeypatch.setattr(supervisor, "available_memory", available_memory)
    try:
        assert refusal(model_dir).startswith("not enough memory: ")
        assert there == [False]
    finally:
        left.unlink(missing_ok=True)


def test_a_taken_metrics_port_is_named(model_dir: Path) -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        assert refusal(model_dir, metrics_port=port) == (
            f"port {port} on 0.0.0.0 is taken by another program; choose another with --metrics-port"
        )
