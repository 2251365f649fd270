"""Machine code that numba has made, kept on disk between processes.

numba's own on-disk cache looks only at the file that holds a function. Ours call one another across files and emit LLVM
IR of their own, so the key of a kept function also holds a digest of every source file of its folder and of the
kernels': an upgrade never loads the machine code of another version. Two more things make functions that were compiled
by different processes fit together: symbols never repeat (numba numbers functions from 1 in every process, and equal
symbols of two kept functions would be taken for one), and a file is named by its whole key, so that ranks which compile
at the same time never file one function under the name of another.
"""

import functools
import hashlib
import itertools
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache, IndexDataCacheFile

_KERNELS = Path(__file__).parent / "kernels"

FunctionIdentity._unique_ids = itertools.count(secrets.randbits(62))


@functools.cache
def source_digest(folder: Path) -> str:
    """A digest of the sources of `folder` and of the kernels; part of every key."""
    digest = hashlib.sha256()
    for place in sorted({folder, _KERNELS}):
        for path in sorted(place.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class _FilesNamedByKey(IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """One file a key, and no index that two processes could rewrite against each other."""

    def save(self, key: Any, data: Any) -> None:
        self._save_data(self._name_of(key), data)

    def load(self, key: Any) -> Any:
        try:
            return self._load_data(self._name_of(key))
        except OSError:
            return None

    def _name_of(self, key: Any) -> Any:
        text = repr((self._version, self._source_stamp, key))
        return self._data_name(int(hashlib.sha256(text.encode()).hexdigest()[:16], 16))


class SourceKeyedCache(FunctionCache):  # type: ignore[misc]
    """Give it to a dispatcher as its `_cache`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _FilesNamedByKey(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        function = self._py_func
        bytecode = hashlib.sha256(function.__code__.co_code).hexdigest()
        sources = source_digest(Path(function.__code__.co_filename).parent)
        return (sig, codegen.magic_tuple(), bytecode, _described(function), sources)


def _described(value: Any) -> str:
    """What tells one variant of a function made by a factory from another: the same in every process."""
    function = getattr(value, "py_func", value)
    name = getattr(function, "__qualname__", None) or getattr(value, "_name", None) or repr(value)
    enclosed = getattr(function, "__closure__", None) or ()
    return f"{name}({', '.join(_described(cell.cell_contents) for cell in enclosed)})"
