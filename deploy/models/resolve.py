"""From what a user typed to a model folder: a known name, a folder, or a hub id."""

import re
from pathlib import Path

from deploy.models.catalogue import KNOWN_MODELS
from deploy.models.download import Progress
from deploy.models.errors import DownloadFailed, UnknownModel
from deploy.models.fetch import _silent, fetch_model

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]


def resolve_model(
    name_or_path: str, *, cache_dir: Path, pip_environment: dict[str, str], progress: Progress = _silent
) -> Path:
    """The folder to serve. Raises `ModelError` in one line."""
    if name_or_path in KNOWN_MODELS:
        return fetch_model(name_or_path, cache_dir=cache_dir, pip_environment=pip_environment, progress=progress).folder
    path = Path(name_or_path).expanduser()
    if name_or_path and path.is_dir():
        return path.resolve()
    if path.is_file():
        raise UnknownModel(f"{name_or_path} is a file; a model is a folder with config.json and safetensors in it")
    if not _HUB_ID.fullmatch(name_or_path):
        raise UnknownModel(
            f"unknown model {name_or_path!r}: neither a known name ({', '.join(KNOWN_MODELS)}), nor a folder, "
            "nor a hub id of the form owner/name"
        )
    return _from_hub(name_or_path)


def _from_hub(hub_id: str) -> Path:
    # Imported here: only hub ids need it, and it takes half a second.
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_WANTED))
    except RepositoryNotFoundError as error:
        raise UnknownModel(f"{hub_id!r} is no folder here, and the hub shows no such model") from error
    except (HfHubHTTPError, OSError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DownloadFailed(f"{hub_id!r} is no folder here, and the model hub gave nothing: {reason}") from error
