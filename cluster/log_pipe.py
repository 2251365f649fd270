"""Log records as lines in a named pipe that another process reads. Linux."""

import errno
import logging
import os
import select

# A line of up to so many bytes is written whole or not at all, whoever else writes (pipe(7)).
_LINE_BYTES = select.PIPE_BUF
_DROPPED = "%d lines of this log were dropped: its reader is slow"


class PipeHandler(logging.Handler):
    """Never waits: a step is not to hang on a terminal. What the pipe has no room for is dropped, and later told."""

    def __init__(self, path: str) -> None:
        """Raises OSError when nobody reads there."""
        super().__init__()
        self._fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._num_dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record).splitlines()
        except Exception:  # as every handler does: what logs is not to fail because of a record
            self.handleError(record)
            return
        if self._num_dropped and self._write(_DROPPED % self._num_dropped):
            self._num_dropped = 0
        for line in lines:
            if not self._write(line):
                self._num_dropped += 1

    def close(self) -> None:
        super().close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, line: str) -> bool:
        """Whether it is in the pipe."""
        try:
            os.write(self._fd, line.encode(errors="replace")[: _LINE_BYTES - 1] + b"\n")
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EPIPE, errno.EBADF):
                raise
            return False
        return True
