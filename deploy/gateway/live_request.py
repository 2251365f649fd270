"""One accepted request, from admission to its end, however that comes: the one place that decides whether to cancel."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.types import Receive

from deploy.gateway.backend import Backend
from deploy.gateway.farewells import Farewells
from deploy.gateway.relay import Relay, Update, Usage

ResultT = TypeVar("ResultT")


class ClientGone(Exception):
    """The client closed its connection; there is nobody left to answer."""


class LiveRequest:
    """`close` must be called, once or more often; it cancels unless the engine itself has ended the request.

    `on_first_token` is called once, when the first token is there.
    """

    def __init__(
        self,
        backend: Backend,
        farewells: Farewells,
        request_id: str,
        relay: Relay,
        on_first_token: Callable[[], None],
    ) -> None:
        self.request_id = request_id
        self._backend = backend
        self._farewells = farewells
        self._relay = relay
        self._on_first_token: Callable[[], None] | None = on_first_token
        self._is_closed = False

    @property
    def usage(self) -> Usage:
        return self._relay.usage

    async def updates(self, idle_s: float | None = None) -> AsyncIterator[list[Update]]:
        """What there is, each time there is something; an empty list each time nothing has come for `idle_s`, or only
        what has no text. The last list ends with `Ended`.
        """
        now = asyncio.get_running_loop().time
        said_at = now()
        async with aclosing(self._backend.events(self.request_id, idle_s)) as batches:
            async for events in batches:
                if self._on_first_token is not None and any(event.tokens for event in events):
                    self._on_first_token()
                    self._on_first_token = None
                updates = self._relay.feed(events)
                if updates or not events or (idle_s is not None and now() - said_at >= idle_s):
                    yield updates
                    said_at = now()
                if self._relay.ended:
                    return
        assert self._relay.ended, "a backend's events end with a finish of every choice"

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
