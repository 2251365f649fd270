"""The token that admin calls carry: read from a file, or made for one server in a file that only its user can read."""

import secrets
import string
from pathlib import Path

from deploy.admin.errors import BadToken

_MIN_CHARS = 16
_MAX_CHARS = 1024
_ALLOWED = frozenset(string.ascii_letters + string.digits + string.punctuation)


def make_token(file: Path) -> None:
    """A token of 256 bits in a new `file` of mode 0600."""
    file.touch(mode=0o600, exist_ok=False)
    file.write_text(secrets.token_urlsafe(32) + "\n", encoding="ascii")


def read_token(file: Path) -> str:
    """The one line in `file`. Raises `BadToken`, which never shows what stands there."""
    try:
        token = file.read_bytes()[: _MAX_CHARS + 2].decode("ascii", "replace").strip()
    except OSError as error:
        raise BadToken(f"cannot read the admin token file {file}: {error.strerror}") from error
    if not _MIN_CHARS <= len(token) <= _MAX_CHARS or not _ALLOWED.issuperset(token):
        raise BadToken(
            f"the admin token file {file} must hold one line, {_MIN_CHARS} to {_MAX_CHARS} printable ASCII characters, "
            "no spaces"
        )
    return token


def may_be_read_by_others(file: Path) -> bool:
    """Whether its mode lets its group or everybody read it."""
    return bool(file.stat().st_mode & 0o044)
