"""The one way kernels are compiled: ahead of the first call, without the GIL, and kept on disk between processes."""

import functools
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import sigutils
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target

from workers.code_cache import SourceKeyedCache


def kernel(*signatures: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile for exactly these numba signatures; a call with other types raises TypeError and compiles nothing."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=True, error_model="numpy")(function)
        dispatcher._cache = SourceKeyedCache(function)
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
    native._cache = SourceKeyedCache(function)
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
