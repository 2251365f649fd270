"""The entry of a spawned rank process. Imports neither torch nor numba before the environment is settled."""

import ctypes
import logging
import os
import signal
import sys
from typing import NoReturn

from workers.executors.rank_host import RankHost, settle_environment
from workers.link import LinkAddress, LinkError, serve_rank
from workers.spec import RankSpec

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends. Linux."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it was gone before we asked
        os._exit(1)


def run_rank(spec: RankSpec, address: LinkAddress, parent_pid: int) -> NoReturn:
    """Serve the engine until it hangs up, then end the process. Its exit code is 1 after any failure; the engine has
    its text.
    """
    die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    settle_environment(spec)
    host = RankHost(spec)
    exit_code = 1
    try:
        serve_rank(address, host.build, host.hang_up)
        exit_code = 0
    except LinkError as error:
        log.error("rank %d: %s", spec.rank, error)
    except Exception:  # logged where it happened, and told to the engine
        log.debug("rank %d ends", spec.rank)
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        # At once: the rank is closed, and to take torch and numba apart costs more than a second of CPU.
        os._exit(exit_code)
