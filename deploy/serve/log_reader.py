"""The reading end of the named pipe that the processes of one server log to."""

import os
from pathlib import Path

_CHUNK_BYTES = 1 << 16


def log_pipe(session: Path) -> Path:
    """Of the server with that folder."""
    return session / "log"


class LogReader:
    """`fd` is readable when there is something to take."""

    def __init__(self, path: Path) -> None:
        """Makes the pipe, for this user alone."""
        os.mkfifo(path, 0o600)
        # Open for writing too: a pipe without a writer is at its end, and would be readable for ever.
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def take(self) -> list[str]:
        """Whole lines that have come; never waits."""
        try:
            data = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def close(self) -> None:
        os.close(self.fd)
