"""The one place where the process environment is read, and where the environment of child processes is made."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.request_ids import SERVE_LAYERS

# One process tree's marks: Ray reads them when it is imported, so they must be there before.
_RAY = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's default of 15 starves ranks beside any other program
    "RAY_SERVE_LOG_TO_STDERR": "0",
    # Serve ends and restarts a proxy that is not ready within 5 s, for ever on a machine that is busy loading a model.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "1",
    # A metrics page that Ray would open to every network, on a fixed port that another Ray may want: no port, no page.
    "DASHBOARD_METRIC_PORT": "-1",
}
# Compute threads are the ranks' own affair; a second pool of spinning OpenMP threads collapses both.
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# A variable of another Ray on this machine must not lead ours there.
_NEVER_INHERITED = ("RAY_ADDRESS", "RAY_NAMESPACE", "RAY_TMPDIR", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_JOB_ID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """`cache_dir` for models; `temp_dir` under which a server makes its own; `variables` for child processes.

    `records_dir` is where servers of this user say that they run. `admin_address`, `admin_token_file`, `admin_tls_ca`
    are what PARKADE_ADMIN, PARKADE_ADMIN_TOKEN_FILE and PARKADE_ADMIN_TLS_CA name, None without.
    """

    cache_dir: Path
    temp_dir: Path
    records_dir: Path
    variables: Mapping[str, str]
    admin_address: str | None = None
    admin_token_file: Path | None = None
    admin_tls_ca: Path | None = None

    def for_own_ray(self, token_path: Path, port: int) -> dict[str, str]:
        """The environment of a driver that starts a Ray of its own, closed by the token in `token_path`.

        The gateway itself answers on `port`: a token that goes through Serve's proxy costs a Ray message, about 2 ms of
        a core that the model needs.
        """
        kept = {name: value for name, value in self.variables.items() if name not in _NEVER_INHERITED}
        direct = {
            "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(port),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(port + 1),  # the first that is not taken
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
            "RAY_SERVE_PORT_QUARANTINE_S": "0",  # else a gateway that died is replaced minutes later: there is one port
        }
        return kept | _RAY | _THREADS | SERVE_LAYERS | direct | {"RAY_AUTH_TOKEN_PATH": str(token_path)}

    def for_running_ray(self) -> dict[str, str]:
        """The environment of a driver that joins a running Ray: how to prove itself there is the user's setting."""
        return dict(self.variables) | {name: _RAY[name] for name in _RAY if name != "RAY_AUTH_MODE"} | _THREADS


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment:
    temp_dir = Path(tempfile.gettempdir())
    runtime_dir = _absolute(variables.get("XDG_RUNTIME_DIR"))
    return Environment(
        cache_dir=(_absolute(variables.get("XDG_CACHE_HOME")) or Path.home() / ".cache") / "parkade",
        temp_dir=temp_dir,
        records_dir=runtime_dir / "parkade" if runtime_dir else temp_dir / f"parkade-{os.getuid()}",
        variables=dict(variables),
        admin_address=variables.get("PARKADE_ADMIN") or None,
        admin_token_file=_path(variables.get("PARKADE_ADMIN_TOKEN_FILE")),
        admin_tls_ca=_path(variables.get("PARKADE_ADMIN_TLS_CA")),
    )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _absolute(text: str | None) -> Path | None:
    """A relative XDG path is invalid by its specification and is ignored, as everywhere."""
    return Path(text) if text and Path(text).is_absolute() else None
