"""One rank's collective and model, built in the process that serves it, and ended when the engine is gone."""

import logging
import os
import threading
from typing import Any

from workers.collective import Collective, open_collective
from workers.link import OnCopy, PlanRunner
from workers.spec import RankSpec

log = logging.getLogger(__name__)

_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_HANGUP_GRACE_S = 10.0


def settle_environment(spec: RankSpec) -> None:
    """Must run before torch or numpy is imported: their thread pools would fight over the cores of all ranks."""
    for name in _ONE_THREAD:
        os.environ[name] = str(spec.num_threads)
    if "://127." in spec.collective.init_method:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


class RankHost:
    """`build` and `hang_up` are what `serve_rank` asks for."""

    def __init__(self, spec: RankSpec) -> None:
        self._spec = spec
        self._collective: Collective[Any] | None = None
        self._watchdog: threading.Timer | None = None

    def build(self, on_copy: OnCopy) -> PlanRunner:
        """Join the collective and load the model. Raises what either raises."""
        from workers.rank import Rank  # noqa: PLC0415  # torch: seconds, and only this process needs it

        spec = self._spec
        self._collective = open_collective(spec.collective, spec.rank, spec.world_size, spec.backend)
        try:
            return Rank(spec, self._collective, on_copy)
        except BaseException:
            self._collective.close()
            raise

    def hang_up(self) -> None:
        """The engine is gone: break a wait for a peer; end the process should even that not end the rank."""
        if self._collective is not None:
            self._collective.abort()
        self._watchdog = threading.Timer(_HANGUP_GRACE_S, self._end)
        self._watchdog.daemon = True
        self._watchdog.start()

    def finish(self) -> None:
        """The rank has ended: the process may live on."""
        if self._watchdog is not None:
            self._watchdog.cancel()

    def _end(self) -> None:
        log.error("rank %d was still busy %g s after its engine left", self._spec.rank, _HANGUP_GRACE_S)
        os._exit(1)
