"""Load or compile every kernel now, so that no request waits for it."""

import importlib

KERNEL_MODULES = ("activation", "attention", "copy", "embedding", "linear", "norm", "rope", "sampling")


def warm_up() -> None:
    """Kernels compile where they are defined, so to import is to compile, or to load what an earlier process compiled.

    About a second from the cache; half a minute the first time on a machine.
    """
    for name in KERNEL_MODULES:
        importlib.import_module(f"workers.kernels.{name}")
