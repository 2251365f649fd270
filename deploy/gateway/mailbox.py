"""One request's events between the task that receives them and the task that streams them. One event loop, no locks."""

import asyncio

from scheduler.messages import TokenEvent


class Mailbox:
    """`put` never waits; `take` waits until there is something and returns all of it. One taker."""

    def __init__(self) -> None:
        self._events: list[TokenEvent] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: TokenEvent) -> None:
        self._events.append(event)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def take(self) -> list[TokenEvent]:
        if not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events, self._events = self._events, []
        return events
