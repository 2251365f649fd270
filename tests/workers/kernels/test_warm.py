"""Kernels compile once a machine, not once a process."""

import subprocess
import sys
from typing import Any

from workers.kernels.compile import kernel
from workers.kernels.warm import KERNEL_MODULES, warm_up

COUNT_COMPILED = """
import importlib
from workers.kernels.compile import kernel
from workers.kernels.warm import KERNEL_MODULES, warm_up
warm_up()
misses, hits = 0, 0
for name in KERNEL_MODULES:
    for value in vars(importlib.import_module(f"workers.kernels.{name}")).values():
        if hasattr(value, "stats") and value.signatures:
            misses += sum(value.stats.cache_misses.values())
            hits += sum(value.stats.cache_hits.values())
print(misses, hits)
"""


def test_a_second_process_loads_every_kernel_and_compiles_none() -> None:
    warm_up()
    counts = subprocess.run([sys.executable, "-c", COUNT_COMPILED], capture_output=True, text=True, check=True).stdout
    misses, hits = map(int, counts.split())
    assert misses == 0
    assert hits >= len(KERNEL_MODULES)


def test_variants_made_by_one_factory_do_not_take_each_others_code() -> None:
    def make(offset: int) -> Any:
        @kernel("int64(int64)")
        def shifted(x):  # type: ignore[no-untyped-def]
            return x + offset

        return shifted

    assert [make(offset)(10) for offset in (1, 2, 1)] == [11, 12, 11]
