"""What can be refused before anything is started: a taken port, a broken weight file, a bad key file."""

import errno
import json
import socket
import ssl
from pathlib import Path

from safetensors import SafetensorError, safe_open

from deploy.admin.token import read_token
from deploy.api_keys import BadApiKeys, load_api_keys
from deploy.serve.errors import CannotServe
from deploy.serve.plan import AdminPlan

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_DTYPES = ("BF16", "F16", "F32")


def check_port(host: str, port: int, flags: str = "--host and --port") -> None:
    """Raises `CannotServe` unless `host`:`port`, which `flags` chose, can be listened on."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
    except OSError as error:
        raise CannotServe(f"host {host!r} is no address of this machine: {error.strerror}") from error
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that only lingers is free
        try:
            probe.bind(address)
        except OSError as error:
            raise CannotServe(_why_not(host, port, flags, error)) from error


def _why_not(host: str, port: int, flags: str, error: OSError) -> str:
    of_port = flags.rsplit(maxsplit=1)[-1]
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken by another program; choose another with {of_port}"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} may not be used by this user; ports from 1024 up may: choose one with {of_port}"
    return f"cannot listen on {host}:{port}: {error.strerror}; choose another with {flags}"


def check_admin(admin: AdminPlan) -> None:
    """Port, token file and certificate of the admin interface. Raises `CannotServe` and `BadToken`."""
    check_port(admin.host, admin.port, "--admin-host and --admin-port")
    if admin.token_file is not None:
        read_token(Path(admin.token_file))
    if admin.tls_cert is None or admin.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(admin.tls_cert, admin.tls_key)
    except OSError as error:  # ssl's errors are OSErrors
        reason = error.strerror if type(error) is not ssl.SSLError else error.reason
        raise CannotServe(
            f"{admin.tls_cert} and {admin.tls_key} are no certificate with its key, both in PEM: {reason}"
        ) from error


def check_api_keys(file: str | None) -> None:
    """Raises `CannotServe` for a file that holds no keys."""
    if file is None:
        return
    try:
        load_api_keys(Path(file))
    except BadApiKeys as error:
        raise CannotServe(f"API keys: {error}") from error


def check_weights(model_dir: Path) -> None:
    """Open every weight file and read its table of tensors; shapes are checked by the ranks. Raises `CannotServe`."""
    for file in _weight_files(model_dir):
        path = model_dir / file
        try:
            with safe_open(path, framework="numpy") as tensors:
                wrong = next((n for n in tensors.keys() if tensors.get_slice(n).get_dtype() not in _DTYPES), None)  # noqa: SIM118
                dtype = tensors.get_slice(wrong).get_dtype() if wrong else None
        except FileNotFoundError:
            raise CannotServe(f"{path} is missing; fetch or copy the model again") from None
        except (SafetensorError, OSError) as error:
            raise CannotServe(f"{path} is damaged or truncated ({error}); fetch or copy the model again") from error
        if wrong:
            raise CannotServe(f"{path}: tensor {wrong} is {dtype}; weights must be one of {', '.join(_DTYPES)}")


def _weight_files(model_dir: Path) -> list[str]:
    index = model_dir / _INDEX
    if not index.is_file():
        return [_WEIGHTS]
    try:
        files = {str(file) for file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotServe(f"{index} is damaged: it holds no weight_map") from error
    if any(Path(file).name != file for file in files):
        raise CannotServe(f"{index} names weight files outside the model folder")
    return sorted(files)
