"""Where the log of our actors goes: their standard error, which Ray keeps in the session's logs."""

import logging

_HOUSES = ("cluster", "workers", "scheduler", "kv")


def open_actor_log(level: int = logging.INFO) -> None:
    """Once a process. A log that Ray or somebody else has set up already is left as it is, but for our own level."""
    if not logging.getLogger().handlers:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    for house in _HOUSES:
        logging.getLogger(house).setLevel(level)
