"""API keys: a file with one key a line, and whose each of them is. Standard library only: the file can be checked
before anything is started.

A line is `KEY` or `NAME KEY`; empty lines and lines that begin with # are skipped. A key's owner is its name, else a
short digest of the key. Lines of one name have one owner: so a key is replaced without a gap. Keys are kept as digests
only and are never shown, logged or repeated in an error.

BadApiKeys(ValueError)   the file cannot be used; the message gives the line number and never the line
"""

import hashlib
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path

MIN_KEY_CHARS = 16
MAX_KEY_CHARS = 512
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY_CHARS = frozenset(string.ascii_letters + string.digits + string.punctuation)


class BadApiKeys(ValueError):
    """The file cannot be used as it is."""


class ApiKeys:
    """Which key is whose. Made by `load_api_keys`."""

    def __init__(self, owners: Mapping[bytes, str]) -> None:
        """`owners` by the SHA-256 of each key."""
        self._owners = dict(owners)

    def __len__(self) -> int:
        return len(self._owners)

    def __repr__(self) -> str:
        return f"ApiKeys({len(self)} keys)"

    def owner_of(self, key: str) -> str | None:
        """None for a key that is not ours.

        What is looked up is a digest: how long a comparison takes tells nothing of how much of a key was right.
        """
        return self._owners.get(_digest(key))


def load_api_keys(path: Path) -> ApiKeys:
    """Raises `BadApiKeys`."""
    owners: dict[bytes, str] = {}
    lines: dict[bytes, int] = {}
    for number, words in _lines_of(path):
        key = words[-1]
        _check(path, number, words)
        digest = _digest(key)
        if digest in owners:
            raise BadApiKeys(f"{path}, line {number}: the same key as in line {lines[digest]}; give each key once")
        owners[digest] = words[0] if len(words) == 2 else f"sha256:{digest.hex()[:12]}"
        lines[digest] = number
    if not owners:
        raise BadApiKeys(f"{path} holds no key; write one a line, or serve without keys")
    return ApiKeys(owners)


def first_key(path: Path) -> str:
    """One key that is taken, for asking a server of one's own. Raises `BadApiKeys`."""
    load_api_keys(path)
    return next(words[-1] for _, words in _lines_of(path))


def _lines_of(path: Path) -> list[tuple[int, list[str]]]:
    """The words of each line that says something, with its number from 1."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadApiKeys(f"{path} cannot be read: {reason}") from None
    lines = enumerate(text.splitlines(), start=1)
    return [(number, line.split()) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]


def _check(path: Path, number: int, words: Sequence[str]) -> None:
    where = f"{path}, line {number}"
    if len(words) > 2:
        raise BadApiKeys(f"{where}: {len(words)} words; write a key, or a name and a key")
    if len(words) == 2 and not _NAME.fullmatch(words[0]):
        raise BadApiKeys(f"{where}: a name is 1 to 64 letters, digits, dots, dashes or underscores")
    key = words[-1]
    if not MIN_KEY_CHARS <= len(key) <= MAX_KEY_CHARS:
        raise BadApiKeys(f"{where}: the key has {len(key)} characters; it must have {MIN_KEY_CHARS} to {MAX_KEY_CHARS}")
    if not _KEY_CHARS.issuperset(key):
        raise BadApiKeys(f"{where}: a key may hold visible ASCII characters only, for it travels in a header")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
