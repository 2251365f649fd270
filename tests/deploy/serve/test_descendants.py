"""Processes are found by parentage and ended to the last one. Each test acts in a process of its own."""

import os
import select
import subprocess
import sys
from pathlib import Path

from deploy.serve.descendants import descendants

# A child that leaves a grandchild behind, which then ignores SIGTERM in a session of its own.
ORPHAN_MAKER = (
    "import os, signal, subprocess, sys\n"
    "stubborn = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True);'\n"
    "stubborn += 'time.sleep(600)'\n"
    "child = subprocess.Popen([sys.executable, '-c', stubborn], stdout=subprocess.PIPE, start_new_session=True)\n"
    "child.stdout.readline()\n"
    "print(child.pid, flush=True)\n"
    "os._exit(0)\n"
)


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_an_orphan_is_adopted_found_and_killed_though_it_resists() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from deploy.serve.descendants import adopt_orphans, descendants, end_descendants\n"
        "adopt_orphans()\n"
        "orphan = int(subprocess.run([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE).stdout)\n"
        "assert descendants(os.getpid()) == [orphan], descendants(os.getpid())\n"
        "end_descendants(0.1)\n"
        "assert descendants(os.getpid()) == []\n"
        "print(orphan)\n"
    )
    orphan = int(run(program, ORPHAN_MAKER))
    assert not Path(f"/proc/{orphan}").exists()


def test_a_grandchild_is_found_under_its_grandparent() -> None:
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=sys.stdin)"
    child = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE)
    try:
        while not (grandchildren := descendants(child.pid)):
            assert child.poll() is None
        # This process may have other children, such as the tracker that multiprocessing leaves running.
        family = descendants(os.getpid())
        assert family.index(child.pid) < family.index(grandchildren[0])
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait()


def test_a_child_dies_with_a_parent_that_was_killed() -> None:
    child = (
        "import os, sys, time\n"
        "from deploy.serve.descendants import die_with_parent\n"
        "die_with_parent(int(sys.argv[1]))\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = (
        "import os, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE)\n"
        "print(child.stdout.readline().decode().strip(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", parent, child]
    orphan = int(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=False).stdout)
    try:
        pid_fd = os.pidfd_open(orphan)
    except ProcessLookupError:  # gone already
        return
    try:
        assert select.select([pid_fd], [], [], 30.0)[0] == [pid_fd]
    finally:
        os.close(pid_fd)
