"""What is refused before anything starts, each in one line that names the thing."""

import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from deploy.admin.errors import BadToken
from deploy.serve.checks import check_admin, check_api_keys, check_port, check_weights
from deploy.serve.errors import CannotServe
from deploy.serve.plan import AdminPlan


def test_a_taken_port_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CannotServe, match=f"port {port} on 127.0.0.1 is taken by another program; .* --port"):
            check_port("127.0.0.1", port)


def test_a_port_is_free_again_right_after_its_last_connection() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
    check_port("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(CannotServe, match=r"cannot listen on 192.0.2.1:8000"):
        check_port("192.0.2.1", 8000)


def test_a_host_that_is_none_is_refused() -> None:
    with pytest.raises(CannotServe, match="host 'not a host' is no address"):
        check_port("not a host", 8000)


def admin_plan(**values: object) -> AdminPlan:
    defaults = {"host": "127.0.0.1", "port": 0, "token_file": None, "tls_cert": None, "tls_key": None}
    return AdminPlan(**(defaults | values))  # type: ignore[arg-type]


def test_the_admin_port_is_told_apart_by_its_flag() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CannotServe, match=f"port {port} on 127.0.0.1 is taken .* another with --admin-port$"):
            check_admin(admin_plan(port=port))
    with pytest.raises(CannotServe, match=r"choose another with --admin-host and --admin-port"):
        check_admin(admin_plan(host="192.0.2.1"))


def test_a_bad_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short")
    with pytest.raises(BadToken, match="16 to 1024 printable"):
        check_admin(admin_plan(token_file=str(tmp_path / "token")))


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("no certificate")
    for key in ("cert", "gone"):
        with pytest.raises(CannotServe, match=r"cert and .* are no certificate with its key, both in PEM: \S+"):
            check_admin(admin_plan(tls_cert=str(tmp_path / "cert"), tls_key=str(tmp_path / key)))


def test_an_api_key_file_is_read_before_anything_starts(tmp_path: Path) -> None:
    check_api_keys(None)
    (tmp_path / "keys").write_text("team a-key-of-some-length\n")
    check_api_keys(str(tmp_path / "keys"))
    with pytest.raises(CannotServe, match=r"API keys: .*gone cannot be read: No such file"):
        check_api_keys(str(tmp_path / "gone"))


def test_sound_weights_pass(model_dir: Path) -> None:
    check_weights(model_dir)


def test_a_missing_shard_is_named(model_dir: Path) -> None:
    (model_dir / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CannotServe, match=r"model-00002-of-00002.safetensors is missing"):
        check_weights(model_dir)


def test_a_folder_without_weights_names_the_file_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(CannotServe, match=r"model.safetensors is missing"):
        check_weights(tmp_path)


@pytest.mark.parametrize("num_bytes", [0, 5, 100, -1])
def test_a_truncated_file_is_named(model_dir: Path, num_bytes: int) -> None:
    path = model_dir / "model-00001-of-00002.safetensors"
    size = path.stat().st_size
    os.truncate(path, num_bytes if num_bytes >= 0 else size + num_bytes)
    with pytest.raises(CannotServe, match=r"model-00001-of-00002.safetensors is damaged or truncated") as caught:
        check_weights(model_dir)
    assert "\n" not in str(caught.value)


def test_a_dtype_that_is_not_computed_is_named_with_those_that_are(model_dir: Path) -> None:
    tensors = {"good": np.zeros(4, dtype=np.float32), "tensor1": np.zeros((4, 4), dtype=np.int8)}
    save_file(tensors, model_dir / "model-00001-of-00002.safetensors")
    with pytest.raises(CannotServe, match="tensor tensor1 is I8; weights must be one of BF16, F16, F32"):
        check_weights(model_dir)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": 3}', "{}"])
def test_a_damaged_index_is_named(model_dir: Path, text: str) -> None:
    (model_dir / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CannotServe, match=r"model.safetensors.index.json is damaged"):
        check_weights(model_dir)


def test_an_index_cannot_lead_out_of_the_folder(model_dir: Path) -> None:
    index = {"weight_map": {"x": "../../etc/passwd"}}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CannotServe, match="outside the model folder"):
        check_weights(model_dir)
