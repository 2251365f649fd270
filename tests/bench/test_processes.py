"""Who descends from whom, and what is resident."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import Process, descendants, processes, resident_mib

SLEEPER = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "a sleeper of this test"]


def process(pid: int, parent: int) -> Process:
    return Process(pid=pid, parent=parent, command=f"p{pid}")


def test_descendants_are_children_and_their_children_and_nobody_else() -> None:
    among = [process(pid, parent) for pid, parent in ((2, 1), (3, 1), (4, 2), (5, 4), (6, 3))]
    assert [found.pid for found in descendants(2, among)] == [4, 5]
    assert descendants(6, among) == []


def test_a_child_of_this_process_is_found_with_its_command() -> None:
    with subprocess.Popen(SLEEPER, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # a process that has only just begun shows no command yet
        found = {process.pid: process for process in descendants(os.getpid(), processes())}
        child.communicate()
    assert found[child.pid].command.endswith("a sleeper of this test")


def test_resident_memory_is_read_in_mebibytes(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "smaps_rollup").write_text(
        "00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss:   2048 kB\nPss: 9 kB\n"
    )
    assert resident_mib(7, proc=tmp_path) == 2.0
    assert resident_mib(os.getpid()) > 1.0


def test_a_process_without_a_resident_size_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "smaps_rollup").write_text("")
    with pytest.raises(ValueError, match="process 7"):
        resident_mib(7, proc=tmp_path)
