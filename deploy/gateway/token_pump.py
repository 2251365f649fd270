"""One task a connection to an engine: takes its batches and puts each event into the mailbox of its request."""

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Sequence

from deploy.gateway.mailbox import Mailbox
from scheduler.messages import FinishReason, TokenEvent

logger = logging.getLogger(__name__)


class TokenPump:
    """`open` a request before it is submitted, read its `events`, `close` it. Events of unknown requests are dropped:
    they are late ones of a cancelled request."""

    def __init__(self) -> None:
        self._mailboxes: dict[str, Mailbox] = {}
        self._owner: dict[str, str] = {}  # request id -> the connection its events come from, once one has come
        self._running: set[str] = set()

    @property
    def num_open(self) -> int:
        return len(self._mailboxes)

    @property
    def connections(self) -> frozenset[str]:
        """Names of those that are alive."""
        return frozenset(self._running)

    def open(self, request_id: str) -> None:
        self._mailboxes[request_id] = Mailbox()

    def close(self, request_id: str) -> None:
        """Idempotent. Nobody may be waiting for its events any more, or else for the last time."""
        self._mailboxes.pop(request_id, None)
        self._owner.pop(request_id, None)

    async def events(self, request_id: str) -> AsyncGenerator[Sequence[TokenEvent], None]:
        """All there are, each time there are some, up to the one with `finish`."""
        mailbox = self._mailboxes[request_id]
        try:
            while True:
                events = await mailbox.take()
                yield events
                if events[-1].finish is not None:
                    return
        finally:
            self.close(request_id)

    async def run(self, connection: str, batches: AsyncIterable[Sequence[TokenEvent]]) -> None:
        """Until the connection ends; its requests end with an error then."""
        self._running.add(connection)
        try:
            async for batch in batches:
                for event in batch:
                    self._deliver(connection, event)
        except Exception as error:
            logger.warning("connection to engine %s broke: %s", connection, type(error).__name__)
        finally:
            self._running.discard(connection)
            self._fail_requests_of(connection)

    def _deliver(self, connection: str, event: TokenEvent) -> None:
        request_id = event.request_id
        mailbox = self._mailboxes.get(request_id)
        if mailbox is not None:
            self._owner[request_id] = connection
            mailbox.put(event)

    def _fail_requests_of(self, connection: str) -> None:
        """Those that it has served, and, when it was the last one, those that nobody has served yet."""
        for request_id, mailbox in self._mailboxes.items():
            owner = self._owner.get(request_id)
            if owner == connection or (owner is None and not self._running):
                mailbox.put(
                    TokenEvent(
                        request_id=request_id, finish=FinishReason.ERROR, error="the connection to the engine was lost"
                    )
                )
