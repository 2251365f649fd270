"""One request's events between the task that receives them and the task that streams them. One event loop, no locks."""

import asyncio

from scheduler.messages import TokenEvent


class Mailbox:
    """`put` never waits; `take` waits until there is something and returns all of it. One taker.

    `open_choices` are those of [0, num_choices) whose finish has not been put.
    """

    def __init__(self, num_choices: int) -> None:
        self.open_choices = set(range(num_choices))
        self._events: list[TokenEvent] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: TokenEvent) -> None:
        """What comes of a choice that has finished is dropped."""
        if event.choice not in self.open_choices and event.notice is None:
            return
        if event.finish is not None:
            self.open_choices.discard(event.choice)
        self._events.append(event)
        self._wake()

    async def take(self, idle_s: float | None = None) -> list[TokenEvent]:
        """Empty when nothing has come for `idle_s` seconds."""
        if not self._events:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = None if idle_s is None else loop.call_later(idle_s, self._wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        events, self._events = self._events, []
        return events

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
