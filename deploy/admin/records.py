"""Where a running server says that it runs, so that commands on the same machine find it without being told.

A record is a small file of mode 0600 in a folder of mode 0700 of the same user. It names the token's file, never the
token. One whose process is gone is stale: it is ignored and cleared away.
"""

import os
import stat
from pathlib import Path

import msgspec

_BAD = (OSError, ValueError, IndexError, msgspec.MsgspecError)


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`started` is the process' start in clock ticks since boot: a pid is given again, the two together are not.

    `tls_ca` is a PEM file by which a client knows the server; None: plain text.
    """

    pid: int
    started: int
    admin: str
    token_file: str
    tls_ca: str | None
    http: str
    model: str


def start_ticks(pid: int) -> int:
    """Raises OSError when there is no such process, IndexError or ValueError when it ends right now."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    # The command in parentheses may hold anything; the start is the 20th field after it, the state the first.
    fields = text.rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ValueError(f"process {pid} has ended")
    return int(fields[19])


def write_record(folder: Path, record: ServerRecord) -> Path:
    """Raises OSError, and PermissionError for a folder that others can write to."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(folder):
        raise PermissionError(f"{folder} must be a folder of this user alone, mode 0700")
    file = folder / f"server-{record.pid}.json"
    draft = folder / f".server-{record.pid}"
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600, exist_ok=False)
    draft.write_bytes(msgspec.json.encode(record))
    draft.replace(file)  # a reader sees all of it or nothing
    return file


def living_records(folder: Path) -> list[ServerRecord]:
    """Records of servers that run, by pid. A folder that is missing, or not this user's alone, has none."""
    if not _is_private(folder):
        return []
    records = []
    for file in sorted(folder.glob("server-*.json")):
        record = _read(file)
        if record is None or not _lives(record):
            file.unlink(missing_ok=True)
        else:
            records.append(record)
    return sorted(records, key=lambda record: record.pid)


def _is_private(folder: Path) -> bool:
    """Else another user could send our token where he likes."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _read(file: Path) -> ServerRecord | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ServerRecord)
    except _BAD:
        return None


def _lives(record: ServerRecord) -> bool:
    try:
        return start_ticks(record.pid) == record.started
    except _BAD:
        return False
