"""Kernels compile once a machine, not once a process."""

import subprocess
import sys

from workers.kernels.warm import KERNEL_MODULES, warm_up

COUNT_COMPILED = """
import importlib
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
