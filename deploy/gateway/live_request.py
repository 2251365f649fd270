"""One accepted request, from admission to its end, however that comes: the one place that decides whether to cancel."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from contextvars import Context
from typing import Any, TypeVar

from starlette.types import Receive

from deploy.gateway.backend import Backend
from deploy.gateway.relay import Relay, Update, Usage

logger = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")


class ClientGone(Exception):
    """The client closed its connection; there is nobody left to answer."""


class Farewells:
    """Cancels on their way to the backend. They outlive the request whose client has gone, so each runs in a context of
    its own: in the request's, Ray would see a child of the call it is about to cancel, and cancel the cancel too."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tasks: set[asyncio.Task[None]] = set()

    def cancel(self, request_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self._cancel(request_id), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for all that are under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _cancel(self, request_id: str) -> None:
        try:
            await self._backend.cancel(request_id)
        except Exception as error:  # the engine that holds it is lost, and the request with it
            logger.warning("cancel of %s failed: %s", request_id, type(error).__name__)


class LiveRequest:
    """`close` must be called, once or more often; it cancels unless the engine itself has ended the request."""

    def __init__(self, backend: Backend, farewells: Farewells, request_id: str, relay: Relay) -> None:
        self.request_id = request_id
        self._backend = backend
        self._farewells = farewells
        self._relay = relay
        self._is_closed = False

    @property
    def usage(self) -> Usage:
        return self._relay.usage

    async def updates(self) -> AsyncIterator[list[Update]]:
        """What there is, each time there is something; the last list ends with `Ended`."""
        async with aclosing(self._backend.events(self.request_id)) as batches:
            async for events in batches:
                if updates := self._relay.feed(events):
                    yield updates
                if self._relay.ended:
                    return
        assert self._relay.ended, "a backend's events end with a finish"

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if not self._relay.ended or self._relay.ended_early:
            self._farewells.cancel(self.request_id)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """The result of `work`; raises `ClientGone` as soon as the client leaves, and `work` is stopped then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
