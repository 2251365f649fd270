"""One task a connection to an engine: takes its batches and puts each event into the mailbox of its request."""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence

from deploy.gateway.mailbox import Mailbox
from scheduler.admission import DuplicateRequest
from scheduler.messages import FinishReason, TokenEvent

logger = logging.getLogger(__name__)

# For how long an id closed before its end is refused to the next one, unless its last event comes first. An engine
# that knew the request sends that within a step; one that was still queued may have none.
LATE_S = 10.0
# An engine tells a stream's end first, and admission when the last step that names the request has been answered.
ENDING_S = 2.0


class TokenPump:
    """`open` a request before it is submitted, read its `events`, `close` it. Events of unknown requests are dropped:
    they are late ones of a cancelled request. Clients may choose ids, so an id is not opened again before those have
    come: the next request would take them for its own."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._mailboxes: dict[str, Mailbox] = {}
        self._closed_early: dict[str, tuple[Mailbox, float]] = {}  # and until when it is kept; the oldest first
        self._ended: dict[str, float] = {}  # and until when admission may not have heard of it; the oldest first
        self._owner: dict[str, str] = {}  # request id -> the connection its events come from, once one has come
        self._running: set[str] = set()

    @property
    def num_open(self) -> int:
        return len(self._mailboxes)

    @property
    def connections(self) -> frozenset[str]:
        """Names of those that are alive."""
        return frozenset(self._running)

    def knows(self, request_id: str) -> bool:
        """It is open, or was closed before its end and may not have ended yet."""
        return request_id in self._mailboxes or request_id in self._closed_early

    def is_ending(self, request_id: str) -> bool:
        """Nobody reads it any more, and its id will soon be free if it is not yet."""
        self._forget_late_ones()
        return request_id in self._closed_early or request_id in self._ended

    def open(self, request_id: str, num_choices: int) -> None:
        """Raises `DuplicateRequest` for an id that is open, or that may still have events from before."""
        self._forget_late_ones()
        if self.knows(request_id):
            raise DuplicateRequest(request_id)
        self._mailboxes[request_id] = Mailbox(num_choices)

    def close(self, request_id: str, *, was_refused: bool = False) -> None:
        """Idempotent. Nobody may be waiting for its events any more, or else for the last time."""
        mailbox = self._mailboxes.pop(request_id, None)
        self._owner.pop(request_id, None)
        if mailbox is None or was_refused:
            return
        if mailbox.open_choices:
            self._closed_early[request_id] = mailbox, self._now() + LATE_S
        else:
            self._note_end(request_id)

    async def events(self, request_id: str, idle_s: float | None) -> AsyncGenerator[Sequence[TokenEvent], None]:
        """All there are, each time there are some, until every choice has its `finish`; empty after `idle_s`."""
        mailbox = self._mailboxes[request_id]
        try:
            is_over = False
            while not is_over:
                events = await mailbox.take(idle_s)
                is_over = not mailbox.open_choices
                yield events
        finally:
            if self._mailboxes.get(request_id) is mailbox:
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
        elif request_id in self._closed_early and event.finish is not None:
            late, _ = self._closed_early[request_id]
            late.put(event)
            if not late.open_choices:
                del self._closed_early[request_id]
                self._note_end(request_id)

    def _note_end(self, request_id: str) -> None:
        self._ended.pop(request_id, None)  # so that the oldest stay first
        self._ended[request_id] = self._now() + ENDING_S

    def _forget_late_ones(self) -> None:
        now = self._now()
        while self._closed_early and (oldest := next(iter(self._closed_early.items())))[1][1] <= now:
            del self._closed_early[oldest[0]]
        while self._ended and (ended := next(iter(self._ended.items())))[1] <= now:
            del self._ended[ended[0]]

    def _fail_requests_of(self, connection: str) -> None:
        """Those that it has served, and, when it was the last one, those that nobody has served yet."""
        for request_id, mailbox in self._mailboxes.items():
            owner = self._owner.get(request_id)
            if owner == connection or (owner is None and not self._running):
                for choice in sorted(mailbox.open_choices):
                    mailbox.put(_lost(request_id, choice))


def _lost(request_id: str, choice: int) -> TokenEvent:
    return TokenEvent(
        request_id=request_id,
        choice=choice,
        finish=FinishReason.ERROR,
        error="the connection to the engine was lost",
    )
