"""Kernels compile once a machine, not once a process."""

import subprocess
import sys
from typing import Any

from workers.kernels.compile import kernel
from workers.kernels.warm import warm_up

COUNT_COMPILED = """
from numba.core import event
from workers.kernels.warm import warm_up
with event.install_recorder("numba:run_pass") as recorder:
    warm_up(2)
print(len(recorder.buffer))
"""


def test_a_second_process_loads_every_kernel_and_compiles_none() -> None:
    warm_up(2)
    printed = subprocess.run([sys.executable, "-c", COUNT_COMPILED], capture_output=True, text=True, check=True).stdout
    assert int(printed) == 0


def test_variants_made_by_one_factory_do_not_take_each_others_code() -> None:
    def make(offset: int) -> Any:
        @kernel("int64(int64)")
        def shifted(x):  # type: ignore[no-untyped-def]
            return x + offset

        return shifted

    assert [make(offset)(10) for offset in (1, 2, 1)] == [11, 12, 11]
