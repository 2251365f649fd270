"""Where the log of our actors goes: their standard error, which Ray keeps in the session's logs, and a pipe."""

import logging
from dataclasses import dataclass

from cluster.log_pipe import PipeHandler

_HOUSES = ("cluster", "workers", "scheduler", "kv", "deploy")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """`level` is a name of the logging module's. `pipe` is a named pipe whose reader shows the lines; "" for none."""

    level: str = "info"
    pipe: str = ""


def open_actor_log(spec: LogSpec | None = None) -> None:
    """Once a process. A log that Ray or somebody else has set up already is left as it is, but for our own level.

    The pipe lies on the node of the server's own process: an actor elsewhere finds none, and does without.
    """
    spec = spec or LogSpec()
    if not logging.getLogger().handlers:
        logging.basicConfig(format=_FORMAT, level=logging.WARNING)
    handler = _pipe_handler(spec.pipe)
    for house in _HOUSES:
        logger = logging.getLogger(house)
        logger.setLevel(spec.level.upper())
        if handler is not None:
            logger.addHandler(handler)


def _pipe_handler(path: str) -> logging.Handler | None:
    if not path:
        return None
    try:
        handler = PipeHandler(path)
    except OSError:
        return None
    handler.setFormatter(logging.Formatter(_FORMAT))
    return handler
