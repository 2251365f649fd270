"""What a fetched folder must hold, and whether it still does.

`parkade-manifest.json` lists size and sha256 of every file. It is written last, so a file whose inode changed after it
(ctime, which no program can set back) is suspicious and is hashed; a folder with none is believed at once.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

MANIFEST_NAME = "parkade-manifest.json"


@dataclass(frozen=True, slots=True)
class Damage:
    """Why a folder is not as it was written: one line for people."""

    reason: str


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_manifest(folder: Path, source: dict[str, str]) -> None:
    """List all files of `folder`. `source` says where they came from; the same files give the same bytes."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST_NAME
    }
    text = json.dumps({"source": source, "files": files}, indent=2, sort_keys=True)
    (folder / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


def find_damage(folder: Path, *, source: dict[str, str], full: bool) -> Damage | None:
    """None when every file is as written. `full` hashes all files, else only those changed since the manifest."""
    manifest_path = folder / MANIFEST_NAME
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        files: dict[str, dict[str, object]] = manifest["files"]
        written_ns = manifest_path.stat().st_ctime_ns
        same_source = manifest["source"] == source
    except (OSError, ValueError, KeyError, TypeError):
        return Damage(f"{MANIFEST_NAME} is missing or unreadable")
    if not same_source:
        return Damage("it was written from another source")
    hashed = False
    for name, entry in files.items():
        try:
            stat = (folder / name).stat()
        except OSError:
            return Damage(f"{name} is missing")
        if stat.st_size != entry["bytes"]:
            return Damage(f"{name} has {stat.st_size} bytes, not {entry['bytes']}")
        if full or stat.st_ctime_ns > written_ns:
            hashed = True
            if sha256_of(folder / name) != entry["sha256"]:
                return Damage(f"{name} has other contents than were written")
    if hashed:
        _mark_checked(manifest_path)
    return None


def _mark_checked(manifest_path: Path) -> None:
    """Move the manifest's ctime past the files', so that the next check is quick again."""
    try:
        os.utime(manifest_path)
    except OSError:  # a read-only cache is hashed each time
        return
