"""Calls to the backend that outlive the client they were begun for: submissions, and the cancels of who has left.

Each runs in a context of its own. In the request's, Ray would see a child of the call it is about to cancel, and cancel
the cancel too.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

from deploy.errors import BackendLost
from deploy.gateway.backend import Backend
from scheduler.admission import AdmissionRefused
from scheduler.messages import Submission

logger = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")

_SETTLE_S = 5.0


class Farewells:
    """Call `settle` at the end."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tasks: set[asyncio.Task[Any]] = set()

    async def submit(self, submission: Submission, timeout_s: float) -> None:
        """Raises `BackendLost` after `timeout_s`, and what the backend raises.

        If nobody waits for the answer any more, it is awaited here, and what was accepted is cancelled then. Not
        before: until admission has answered, the id may be that of somebody else's living request.
        """
        submitting = self._start(self._backend.submit(submission))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(submitting)
        except AdmissionRefused:
            raise
        except TimeoutError:
            self._start(self._cancel_once_in(submitting, submission.request_id))
            raise BackendLost(f"admission has not answered within {timeout_s:g} s") from None
        except BaseException:
            self._start(self._cancel_once_in(submitting, submission.request_id))
            raise

    def cancel(self, request_id: str) -> None:
        self._start(self._cancel(request_id))

    async def settle(self, timeout_s: float = _SETTLE_S) -> None:
        """Wait for all that are under way; who has not been answered by then never will be."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._tasks:
                    await asyncio.gather(*self._tasks, return_exceptions=True)
        except TimeoutError:
            logger.warning("%d calls to the backend were given up", len(self._tasks))

    def _start(self, work: Coroutine[Any, Any, ResultT]) -> "asyncio.Task[ResultT]":
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _cancel_once_in(self, submitting: "asyncio.Task[None]", request_id: str) -> None:
        """Only a refusal says for sure that it is not in."""
        await asyncio.wait((submitting,))
        if submitting.cancelled() or not isinstance(submitting.exception(), AdmissionRefused):
            await self._cancel(request_id)

    async def _cancel(self, request_id: str) -> None:
        try:
            await self._backend.cancel(request_id)
        except Exception as error:  # the engine that holds it is lost, and the request with it
            logger.warning("cancel of %s failed: %s", request_id, type(error).__name__)
