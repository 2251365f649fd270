"""The one way kernels are compiled: ahead of the first call, without the GIL, and kept on disk between processes.

numba's own on-disk cache looks only at the file that holds a kernel. Ours emit LLVM IR from `simd.py` and `tile.py` and
call one another, so the cache key also holds a digest of every source file of this folder: an upgrade never loads the
machine code of another version. Two more things make kernels that were compiled by different processes fit together:
symbols never repeat (numba numbers functions from 1 in every process, and equal symbols of two cached kernels would be
taken for one function), and a file of the cache is named by its whole key, so that ranks which compile at the same time
never file one kernel under the name of another.
"""

import functools
import hashlib
import itertools
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import sigutils
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target


@functools.cache
def source_digest() -> str:
    """A digest of this folder's sources; part of every cache key."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


FunctionIdentity._unique_ids = itertools.count(secrets.randbits(62))


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


class _SourceKeyedCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _FilesNamedByKey(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        function = self._py_func
        bytecode = hashlib.sha256(function.__code__.co_code).hexdigest()
        return (sig, codegen.magic_tuple(), bytecode, _described(function), source_digest())


def _described(value: Any) -> str:
    """What tells one variant of a function made by a factory from another: the same in every process."""
    function = getattr(value, "py_func", value)
    name = getattr(function, "__qualname__", None) or getattr(value, "_name", None) or repr(value)
    enclosed = getattr(function, "__closure__", None) or ()
    return f"{name}({', '.join(_described(cell.cell_contents) for cell in enclosed)})"


def kernel(*signatures: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile for exactly these numba signatures; a call with other types raises TypeError and compiles nothing."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=True, error_model="numpy")(function)
        dispatcher._cache = _SourceKeyedCache(function)
        for signature in signatures:
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher

    return decorate


def entry(function: Callable[[int, int, int], None]) -> Any:
    """Compile `function(arguments, part, parts)`, three int64, to code whose `.address` a team of threads can call."""
    native: Any = CFunc(
        function, sigutils.normalize_signature("void(int64, int64, int64)"), {}, {"error_model": "numpy"}
    )
    native._cache = _SourceKeyedCache(function)
    native.compile()
    return native


def part(function: Callable[..., Any]) -> Any:
    """A function that kernels are made of: compiled into each kernel that calls it, never called from Python."""
    return njit(nogil=True, error_model="numpy")(function)


def tile_part(function: Callable[..., Any]) -> Any:
    """A part that calls micro-kernels, inlined before compilation: LLVM would optimise them at every level of call."""
    return njit(nogil=True, error_model="numpy", inline="always")(function)


@functools.cache
def native_lanes() -> int:
    """Floats in one vector register of the CPU that numba compiles for: 16 with AVX-512, else 8."""
    _triple, _cpu, features = cpu_target.target_context.codegen().magic_tuple()
    return 16 if "+avx512f" in features else 8
