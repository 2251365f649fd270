"""The record by which commands on this machine find a server, from when it is ready to when it stops."""

import logging
import os
from pathlib import Path

from deploy.admin.records import ServerRecord, start_ticks, write_record
from deploy.serve.banner import reachable, url_of
from deploy.serve.plan import ServerPlan

_log = logging.getLogger(__name__)


class Announcement:
    """In the name of this process, whose end makes the record stale. `folder` is `Environment.records_dir`."""

    def __init__(self, folder: Path, plan: ServerPlan) -> None:
        self._folder = folder
        self._plan = plan
        self._file: Path | None = None

    def make(self, admin: str) -> str | None:
        """The server is ready, and its admin interface listens at `admin`. What is wrong, if it cannot be told."""
        plan, pid = self._plan, os.getpid()
        assert plan.admin.token_file is not None
        address = reachable(admin)
        record = ServerRecord(
            pid=pid,
            started=start_ticks(pid),
            admin=address,
            token_file=plan.admin.token_file,
            tls_ca=plan.admin.tls_cert,
            http=url_of(plan),
            model=plan.model_id,
        )
        try:
            self._file = write_record(self._folder, record)
        except OSError as error:
            return (
                f"commands such as `parkade ps` will not find this server by themselves ({error}); "
                f"tell them --admin {address} --token-file {plan.admin.token_file}"
            )
        return None

    def withdraw(self) -> None:
        """Idempotent, and never raises: a stop goes on."""
        if self._file is None:
            return
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("the record %s stays: %s", self._file, error)
        self._file = None
