"""The process that people see. It checks, starts the driver, shows progress, and ends everything that came of it.

It never imports Ray, so no library stands between a signal and its effect. It adopts orphaned descendants: whatever
the driver, Ray and the actors start is found by parentage, awaited, and killed if it does not end.
"""

import logging
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import msgspec

from deploy.admin.token import make_token
from deploy.config import Environment, ServeConfig
from deploy.serve.announcement import Announcement
from deploy.serve.banner import loading_line, ready_lines
from deploy.serve.cautions import available_shared_memory, cautions
from deploy.serve.checks import check_admin, check_api_keys, check_port, check_weights
from deploy.serve.descendants import adopt_orphans, end_descendants, wait_until_alone
from deploy.serve.errors import ServerFailed
from deploy.serve.log_reader import LogReader, log_pipe
from deploy.serve.memory import available_memory, check_memory
from deploy.serve.plan import ServerPlan, Sizes, make_plan
from deploy.serve.reports import Failed, Progress, Ready, decode_report
from workers.arena.sweep import sweep_dead_segments

STOP_GRACE_S = 20.0
KILL_GRACE_S = 3.0

_log = logging.getLogger(__name__)
Show = Callable[[str], None]


def serve(config: ServeConfig, model_dir: Path, environment: Environment, *, show: Show, debug: bool = False) -> int:
    """Serve until SIGINT or SIGTERM; the exit code. `show` prints one line. Raises `ServeError` in one line."""
    plan, sizes = make_plan(config, model_dir)
    check_weights(model_dir)
    check_port(plan.host, plan.port)
    check_admin(plan.admin)
    check_api_keys(plan.api_key_file)
    if plan.metrics_port is not None:
        check_port("0.0.0.0", plan.metrics_port, "--metrics-port")  # Ray's agent listens on every interface
    sweep_dead_segments()  # before memory is counted: what a crash has left is not taken
    if plan.device == "cpu":
        check_memory(plan, sizes, available_memory())
    for caution in cautions(plan, sizes, available_shared_memory()):
        show(f"warning: {caution}")
    show(loading_line(plan, sizes))
    with _session_dir(environment, keep=debug) as session, StopSignals() as stop:
        adopt_orphans()
        supervisor = Supervisor(_with_token(plan, session), sizes, session, stop, show, debug=debug)
        try:
            return supervisor.run(environment)
        finally:
            sweep_dead_segments()  # of ranks that had to be killed


def _with_token(plan: ServerPlan, session: Path) -> ServerPlan:
    """The plan with the admin token's file, made if none is given."""
    if plan.admin.token_file is not None:
        return plan
    file = session / "admin_token"
    make_token(file)
    return replace(plan, admin=replace(plan.admin, token_file=str(file)))


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered, and wakes whoever waits on `wakeup_fd`."""

    def __init__(self) -> None:
        self.count = 0
        self.wakeup_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self.wakeup_fd)
        os.close(self._write_fd)

    def _received(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        try:
            os.write(self._write_fd, b"!")
        except BlockingIOError:  # the reader is told already
            return


class Supervisor:
    """One driver from its start to its end."""

    def __init__(
        self, plan: ServerPlan, sizes: Sizes, session: Path, stop: StopSignals, show: Show, *, debug: bool
    ) -> None:
        self._plan = plan
        self._sizes = sizes
        self._session = session
        self._stop = stop
        self._show = show
        self._debug = debug
        self._ready = False
        self._log = LogReader(log_pipe(session))

    def run(self, environment: Environment) -> int:
        """Raises `ServerFailed` when the driver failed or died; then, too, nothing is left."""
        announcement = Announcement(environment.records_dir, self._plan)
        read_fd, write_fd = os.pipe()
        driver = self._start_driver(environment, write_fd)
        os.close(write_fd)
        try:
            with os.fdopen(read_fd, "rb", buffering=0) as reports:
                failure = self._watch(reports.fileno(), announcement)
            if failure is None:
                self._show("Stopping (once more to force)" if self._ready else "Stopping")
        finally:
            announcement.withdraw()
            self._end(driver)
            self._log.close()
        if failure is not None:
            raise ServerFailed(failure)
        self._show("Stopped")
        return 0

    def _start_driver(self, environment: Environment, report_fd: int) -> "subprocess.Popen[bytes]":
        token = self._session / "auth_token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        scratch = self._session / "t"
        scratch.mkdir()
        own_ray = self._plan.ray_address is None
        variables = environment.for_own_ray(token, self._plan.port) if own_ray else environment.for_running_ray()
        with (self._session / "driver.log").open("wb") as log:
            output = None if self._debug else log
            driver = subprocess.Popen(
                [sys.executable, "-m", "deploy.serve.driver", str(self._session), str(report_fd), str(os.getpid())],
                env=variables | {"TMPDIR": str(scratch)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(report_fd,),
                process_group=0,  # Ctrl-C reaches the supervisor alone, which ends the rest in order
            )
        assert driver.stdin is not None
        driver.stdin.write(msgspec.json.encode(self._plan) + b"\n")
        driver.stdin.flush()
        return driver

    def _watch(self, reports_fd: int, announcement: Announcement) -> str | None:
        """None once a signal asks to stop; else why the driver is gone."""
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(reports_fd, selectors.EVENT_READ)
            selector.register(self._stop.wakeup_fd, selectors.EVENT_READ)
            selector.register(self._log.fd, selectors.EVENT_READ)
            while not self._stop.count:
                ready = {key.fd for key, _ in selector.select()}
                for logged in self._log.take():
                    self._show(logged)
                if reports_fd not in ready:
                    continue
                data = os.read(reports_fd, 1 << 16)
                if not data:
                    return self._death()
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    if (failure := self._take(line, announcement)) is not None:
                        return failure
        return None

    def _take(self, line: bytes, announcement: Announcement) -> str | None:
        match decode_report(line):
            case Progress(text=text):
                self._show(text)
            case Ready(admin=admin) as ready:
                self._ready = True
                if complaint := announcement.make(admin):
                    self._show(f"warning: {complaint}")
                for shown in ready_lines(self._plan, self._sizes, ready):
                    self._show(shown)
            case Failed(text=text, trace=trace):
                if self._debug and trace:
                    self._show(trace)
                return text
        return None

    def _death(self) -> str:
        """The driver closed its pipe without a word: it was killed."""
        when = "while serving" if self._ready else "while loading"
        return f"the server's driver process died {when}; run again with --debug to see its log"

    def _end(self, driver: "subprocess.Popen[bytes]") -> None:
        """Ask the driver to stop by closing its input; then end whatever is left, by pid."""
        assert driver.stdin is not None
        driver.stdin.close()
        if self._ready or self._plan.ray_address is not None:
            wait_until_alone(STOP_GRACE_S, hurry=self._forced)
        end_descendants(0.0 if self._forced() else KILL_GRACE_S)
        driver.returncode = driver.returncode or 0  # it was reaped above, with all others

    def _forced(self) -> bool:
        """Told to stop more than once."""
        return self._stop.count > 1


@contextmanager
def _session_dir(environment: Environment, *, keep: bool) -> Iterator[Path]:
    """A folder of this server alone, mode 0700: Ray's session, its token, sockets, logs."""
    # Unix sockets lie below, and their paths are bounded: a long TMPDIR would break them.
    parent = environment.temp_dir if len(str(environment.temp_dir)) <= 20 else Path("/tmp")
    session = Path(tempfile.mkdtemp(prefix="parkade-", dir=parent))
    try:
        yield session
    finally:
        if not keep:
            deadline = time.monotonic() + 2.0
            while session.exists() and time.monotonic() < deadline:  # a killed writer may add a last file
                shutil.rmtree(session, ignore_errors=True)
