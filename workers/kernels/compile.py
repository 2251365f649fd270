"""The one way kernels are compiled: ahead of the first call, without the GIL, and kept on disk between processes.

numba's own on-disk cache looks only at the file that holds a kernel. Ours emit LLVM IR from `simd.py` and `tile.py` and
call one another, so the cache key also holds a digest of every source file of this folder: an upgrade never loads the
machine code of another version.
"""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import sigutils
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target


@functools.cache
def source_digest() -> str:
    """A digest of this folder's sources; part of every cache key."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _SourceKeyedCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    def _index_key(self, sig: Any, codegen: Any) -> Any:
        bytecode = hashlib.sha256(self._py_func.__code__.co_code).hexdigest()
        return (sig, codegen.magic_tuple(), bytecode, source_digest())


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
