"""One group whole in one process: admission's core, the engine's loop and an executor, without Ray, HTTP and text.

What decides is what decides in a server; only the ways between the parts are shorter: an event is heard in the turn
in which it is said. With a clock of its own it runs on virtual time as well.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.streams import StreamError
from cluster.cluster_spec import capacity_of
from scheduler.admission import Addressed, AdmissionCore, AdmissionPolicy, HoldTerms, RequestRow
from scheduler.engine.config import EngineConfig
from scheduler.engine.core import EngineCore
from scheduler.engine.loop import EngineLoop
from scheduler.executor import Executor
from scheduler.messages import Deferred, EngineEvent, FinishReason, Notice, Submission, TokenEvent

GATEWAY_ID = "bench"
TICK_S = 0.05

EventListener = Callable[[EngineEvent, float], None]


def unheard(event: EngineEvent, now: float) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class Choice:
    """One answer of a request, so far."""

    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    error: str | None = None


@dataclass(slots=True)
class Stream:
    """A request as its client sees it. `arrivals` are (time, tokens) of all choices, `notices` (time, notice)."""

    submission: Submission
    started: float
    choices: list[Choice]
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    notices: list[tuple[float, Notice]] = field(default_factory=list)
    parks: int = 0
    recomputes: int = 0
    ended_at: float | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def request_id(self) -> str:
        return self.submission.request_id

    @property
    def num_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)

    @property
    def is_whole(self) -> bool:
        """Every choice has all the tokens that were asked for."""
        asked = self.submission.stop.max_tokens
        return all(choice.finish is FinishReason.LENGTH and len(choice.tokens) == asked for choice in self.choices)

    def take(self, event: TokenEvent, now: float) -> None:
        choice = self.choices[event.choice]
        if event.tokens:
            choice.tokens += event.tokens
            self.arrivals.append((now, len(event.tokens)))
        if event.notice is not None:
            self.notices.append((now, event.notice))
        self.parks, self.recomputes = event.parks, event.recomputes
        if event.finish is not None:
            choice.finish, choice.error = event.finish, event.error
            if all(each.finish is not None for each in self.choices):
                self.end(now)

    def end(self, now: float) -> None:
        self.ended_at = now
        self.ended.set()


class LocalGroup:
    """Made by `running`. `on_event` hears every event of the engine, with its time, after admission has."""

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        *,
        policy: AdmissionPolicy | None = None,
        now: Callable[[], float] = time.monotonic,
        on_event: EventListener = unheard,
    ) -> None:
        self.config = config
        self.now = now
        self.admission = AdmissionCore(policy)
        self.admission.add_group(capacity_of(config))
        self.core = EngineCore(config)
        self._heard = on_event
        self._loop = EngineLoop(self.core, executor, self._on_tokens, self._on_event, now)
        self._streams: dict[str, Stream] = {}
        self._pulse = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        config: EngineConfig,
        executor: Executor,
        *,
        policy: AdmissionPolicy | None = None,
        now: Callable[[], float] = time.monotonic,
        on_event: EventListener = unheard,
    ) -> AsyncIterator["LocalGroup"]:
        """Stops the executor at the end. Raises `StreamError` when the ranks failed or the engine has a fault."""
        group = cls(config, executor, policy=policy, now=now, on_event=on_event)
        group._running = asyncio.create_task(group._loop.run())
        ticking = asyncio.create_task(group._tick())
        try:
            yield group
            group._require_running()
        finally:
            ticking.cancel()
            await group._loop.stop()
            # What it failed with is told to every stream, and to whoever waits here.
            await asyncio.gather(group._running, ticking, return_exceptions=True)

    # ---- orders

    def submit(self, submission: Submission) -> Stream:
        """Raises `AdmissionRefused`."""
        choices = [Choice() for _ in range(submission.n)]
        stream = Stream(submission=submission, started=self.now(), choices=choices)
        self._streams[submission.request_id] = stream
        try:
            self._send(self.admission.submit(submission, self.now()))
        except BaseException:
            del self._streams[submission.request_id]
            raise
        return stream

    def cancel(self, request_id: str) -> None:
        self._send(self.admission.cancel(request_id, self.now()))
        self._end_unknown(request_id)

    def park(self, request_id: str, terms: HoldTerms | None = None) -> None:
        """Raises `OrderRefused`."""
        self._send(self.admission.park(request_id, terms or HoldTerms(), self.now()))

    def unpark(self, request_id: str) -> None:
        self._send(self.admission.unpark(request_id, self.now()))

    def set_priority(self, request_id: str, priority: int) -> None:
        self._send(self.admission.set_priority(request_id, priority, self.now()))

    # ---- looking in

    def row(self, request_id: str) -> RequestRow | None:
        """None when it has ended."""
        return self.admission.row(request_id, self.now())

    def is_idle(self) -> bool:
        return self.core.is_idle and not self.admission.status(self.now()).requests

    async def until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait for news until it holds. Raises `StreamError` when it does not within that time of the group's clock."""
        deadline = self.now() + timeout_s
        while not holds():
            if self.now() > deadline:
                raise StreamError(f"what was waited for did not come within {timeout_s:g} s: {self.describe()}")
            await self.news(TICK_S)

    async def ended(self, streams: Sequence[Stream], timeout_s: float) -> None:
        """Raises `StreamError` when one has not ended in time, or the engine has."""
        assert self._running is not None
        waiting = asyncio.create_task(_all_ended(streams))
        try:
            await asyncio.wait([waiting, self._running], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self._require_running()
                raise StreamError(f"not every stream ended within {timeout_s:g} s: {self.describe()}")
        finally:
            waiting.cancel()

    async def news(self, timeout_s: float) -> bool:
        """Wait until something is heard from the engine; False after `timeout_s` of silence. Raises `StreamError`."""
        self._require_running()
        self._pulse.clear()
        try:
            await asyncio.wait_for(self._pulse.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def describe(self) -> str:
        """Each living request in a few words, for an error."""
        rows = self.admission.status(self.now()).requests
        return "; ".join(f"{row.request_id} {row.state}, {row.tokens} tokens" for row in rows) or "nothing lives"

    def check(self) -> None:
        """At rest: every page and slot is free and every book adds up. Raises `StreamError` or a corruption."""
        self.admission.check_integrity()
        self.core.check_integrity()
        load = self.core.account()
        if load.pages_free != load.pages_total or load.arena_free != load.arena_total or load.residents:
            raise StreamError(
                f"at rest {load.pages_free} of {load.pages_total} pages and {load.arena_free} of {load.arena_total} "
                f"arena pages are free, and {len(load.residents)} residents are left"
            )

    # ---- what the loop says

    def _on_tokens(self, batches: Mapping[str, list[TokenEvent]]) -> None:
        now = self.now()
        for event in batches.get(GATEWAY_ID, ()):
            self._streams[event.request_id].take(event, now)
        self._pulse.set()

    def _on_event(self, event: EngineEvent) -> None:
        now = self.now()
        self._send(self.admission.on_event(event, now))
        if isinstance(event, Deferred):
            self._end_unknown(event.request_id)
        self._heard(event, now)
        self._pulse.set()

    def _require_running(self) -> None:
        if self._running is not None and self._running.done():
            raise StreamError(f"the engine has ended: {self._loop.failure}")

    def _end_unknown(self, request_id: str) -> None:
        """Cancelled before any engine had it: no engine will say that it has ended."""
        stream = self._streams.get(request_id)
        if stream is None or stream.ended.is_set() or self.admission.knows(request_id):
            return
        for choice in stream.choices:
            choice.finish = choice.finish or FinishReason.CANCELLED
        stream.end(self.now())

    def _send(self, orders: Iterable[Addressed]) -> None:
        for order in orders:
            self._loop.post(order.command)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._send(self.admission.tick(self.now()))


async def _all_ended(streams: Sequence[Stream]) -> None:
    for stream in streams:
        await stream.ended.wait()
