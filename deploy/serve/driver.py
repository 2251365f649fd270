"""The process that speaks to Ray: starts cluster and gateway, says how it goes, and stops when its input closes.

Run by the supervisor as `python -m deploy.serve.driver SESSION_DIR REPORT_FD SUPERVISOR_PID` with a `ServerPlan` on the
first line of standard input. End of input is the order to stop; it comes, too, when the supervisor was killed.
"""

import os
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import msgspec

from deploy.serve.descendants import die_with_parent
from deploy.serve.plan import ServerPlan
from deploy.serve.reports import Failed, Progress, Ready, Report, encode_report


def main() -> None:
    session, report_fd, supervisor_pid = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    die_with_parent(supervisor_pid)
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServerPlan)
    driver = Driver(plan, session, report_fd)
    code = driver.run()
    if os.getppid() != supervisor_pid:  # nobody is left to clear up
        shutil.rmtree(session, ignore_errors=True)
    # Threads of Ray and Serve have nothing left to do; waiting for them only lengthens the stop.
    sys.stdout.flush()
    os._exit(code)


class Driver:
    """Everything that one plan starts."""

    def __init__(self, plan: ServerPlan, session: Path, report_fd: int) -> None:
        self._plan = plan
        self._session = session
        self._report_fd = report_fd
        self._began = time.monotonic()
        self._stop = threading.Event()

    def run(self) -> int:
        # Imported here: Ray is imported with it, and the supervisor should hear of a broken installation.
        from deploy.serve.running import RunningServer  # noqa: PLC0415

        server = RunningServer(self._plan, self._session, self._progress)
        threading.Thread(target=self._await_end_of_input, daemon=True).start()
        code = 0
        try:
            admin, metrics_url = server.start()
            # Ray has put its own handler in place, which would end its processes before ours are told to stop.
            signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
            self._report(Ready(seconds=time.monotonic() - self._began, admin=admin, metrics_url=metrics_url))
            if (loss := server.wait(self._stop)) is not None:
                self._report(Failed(text=loss))
                code = 1
        except Exception as error:
            self._report(Failed(text=in_one_line(error), trace=traceback.format_exc()))
            code = 1
        server.stop()
        return code

    def _progress(self, text: str) -> None:
        self._report(Progress(text=f"  {time.monotonic() - self._began:5.1f} s  {text}"))

    def _report(self, report: Report) -> None:
        try:
            os.write(self._report_fd, encode_report(report))
        except BrokenPipeError:  # the supervisor is gone: its end closes our input too
            return

    def _await_end_of_input(self) -> None:
        sys.stdin.buffer.read()
        self._stop.set()


def in_one_line(error: BaseException) -> str:
    """The root of an error, without the frames that Ray puts around what a remote process raised."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return in_one_line(cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # "package.module.BrokenModel: the message": the class says nothing to people.
    head, colon, message = lines[-1].partition(": ")
    return message if colon and head.replace(".", "").replace("_", "").isalnum() and " " not in head else lines[-1]


if __name__ == "__main__":
    main()
