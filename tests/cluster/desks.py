"""An admission desk with an engine that is played by the test, and a clock turned by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.admission_desk import AdmissionDesk
from cluster.cluster_spec import TokenAddress
from cluster.engine_port import EngineOrder, EnginePort, Farewell
from cluster.readings import Reading
from cluster.watch import WatchEvent
from scheduler.admission import AdmissionPolicy, GroupCapacity
from scheduler.messages import (
    Admit,
    EngineEvent,
    Finished,
    FinishReason,
    GroupLoad,
    Parked,
    ParkMode,
    ParkReason,
    Progress,
    ResidentLoad,
    Restored,
    Submission,
)
from scheduler.sampling import SamplingParams, StopRules

PAGES, PAGE_SIZE, SEATS, ARENA = 64, 16, 4, 64
UNIX_S = 1_700_000_000.0


def submission(
    request_id: str, *, prompt: int = 20, gateway: str = "gateway", owner: str = "", priority: int = 0, n: int = 1
) -> Submission:
    return Submission(
        request_id=request_id,
        gateway_id=gateway,
        prompt_tokens=tuple(range(prompt)),
        sampling=SamplingParams(),
        stop=StopRules(max_tokens=40),
        priority=priority,
        n=n,
        owner=owner,
    )


@dataclass
class PlayedEngine:
    """One group. `say` what it does; its account follows. `sent` is what it was told, `silent` ends its taking."""

    desk: AdmissionDesk
    group_id: str = "g"
    sent: list[EngineOrder] = field(default_factory=list)
    broken: bool = False
    _pages: dict[str, int] = field(default_factory=dict)
    _in_arena: dict[str, int] = field(default_factory=dict)
    _tokens: dict[str, int] = field(default_factory=dict)

    def register(self, *, park: bool = True, recompute: bool = True) -> None:
        capacity = GroupCapacity(
            group_id=self.group_id,
            num_pages=PAGES,
            page_size=PAGE_SIZE,
            seats=SEATS,
            max_model_len=PAGES * PAGE_SIZE,
            park=park,
            recompute=recompute,
            page_bytes=1000,
        )
        address = TokenAddress(group_id=self.group_id, endpoint="unix:/x", token="t")
        self.desk.register(capacity, EnginePort(address, self._take, self._probe))

    async def _take(self, orders: Sequence[EngineOrder]) -> None:
        if self.broken:
            raise ConnectionError("the engine died")
        self.sent.extend(orders)

    async def _probe(self) -> None:
        return None

    # ---- what it has been told

    def told(self, kind: type) -> list[EngineOrder]:
        return [order for order in self.sent if isinstance(order, kind)]

    @property
    def farewells(self) -> list[Farewell]:
        return [order for order in self.sent if isinstance(order, Farewell)]

    @property
    def last_command(self) -> int:
        return max((order.number for order in self.sent if not isinstance(order, Farewell)), default=0)

    @property
    def _prompts(self) -> dict[str, int]:
        orders = (order for order in self.sent if isinstance(order, Admit))
        return {order.submission.request_id: len(order.submission.prompt_tokens) for order in orders}

    # ---- what it does

    async def admit(self) -> None:
        """Take in all that it was told to; an account follows."""
        await self.desk.flush()
        self.has_taken_in()
        await self.say(Progress(load=self.load()))

    def has_taken_in(self) -> None:
        """The same, and it says nothing yet."""
        for request_id, prompt in self._prompts.items():
            if request_id not in self._tokens:
                self._tokens[request_id] = prompt
                self._pages[request_id] = -(-prompt // PAGE_SIZE)

    def grow(self, request_id: str, num_tokens: int) -> None:
        """It has so many tokens now; no account of it follows."""
        self._tokens[request_id] = num_tokens

    async def park(self, request_id: str, reason: ParkReason, mode: ParkMode = ParkMode.COPY) -> None:
        await self.desk.flush()
        pages = self._pages.pop(request_id)
        copied = pages if mode is ParkMode.COPY else 0
        self._in_arena[request_id] = copied
        await self._say_parked(request_id, reason, mode)

    async def still_parked(self, request_id: str) -> None:
        """Told to park what has not come back, it says again that it is parked."""
        await self._say_parked(request_id, ParkReason.EXPLICIT, ParkMode.COPY)

    async def _say_parked(self, request_id: str, reason: ParkReason, mode: ParkMode) -> None:
        copied = self._in_arena[request_id]
        await self.say(
            Parked(
                load=self.load(),
                request_id=request_id,
                num_tokens=self._tokens[request_id],
                seats=1,
                pages_to_hold=-(-self._tokens[request_id] // PAGE_SIZE),
                num_pages=copied,
                mode=mode,
                reason=reason,
                copy_s=0.25 if copied else 0.0,
                copy_bytes=copied * 1000,
            )
        )

    async def restore(self, request_id: str, mode: ParkMode = ParkMode.COPY) -> None:
        await self.desk.flush()
        copied = self._in_arena.pop(request_id)
        self._pages[request_id] = -(-self._tokens[request_id] // PAGE_SIZE)
        await self.say(
            Restored(
                load=self.load(),
                request_id=request_id,
                mode=mode,
                copy_s=0.125 if copied else 0.0,
                copy_bytes=copied * 1000,
            )
        )

    async def finish(self, request_id: str, reason: FinishReason = FinishReason.STOP) -> None:
        await self.desk.flush()
        num_tokens = self._tokens.pop(request_id, self._prompts[request_id])
        for book in (self._pages, self._in_arena):
            book.pop(request_id, None)
        await self.say(Finished(load=self.load(), request_id=request_id, num_tokens=num_tokens, reason=reason))

    async def say(self, *events: EngineEvent) -> None:
        """One batch; then whatever it is told in answer has come."""
        self.desk.take_words(self.group_id, events)
        await self.desk.flush()

    def load(self) -> GroupLoad:
        return GroupLoad(
            group_id=self.group_id,
            last_command=self.last_command,
            pages_total=PAGES,
            pages_free=PAGES - sum(self._pages.values()),
            arena_total=ARENA,
            arena_free=ARENA - sum(self._in_arena.values()),
            residents=tuple(
                ResidentLoad(
                    request_id=request_id,
                    num_tokens=self._tokens[request_id],
                    seats=1,
                    num_pages=pages,
                    pages_to_hold=pages,
                )
                for request_id, pages in self._pages.items()
            ),
        )


class Scene:
    """The desk, its clock, one engine (or none), and all that was published."""

    def __init__(self, policy: AdmissionPolicy | None = None, *, engine: bool = True) -> None:
        self.clock = 100.0
        self.readings: list[Reading] = []
        self.desk = AdmissionDesk(
            policy or AdmissionPolicy(),
            now=lambda: self.clock,
            unix_s=lambda: UNIX_S + self.clock,
            publish=self.readings.extend,
        )
        self.engine = PlayedEngine(self.desk)
        if engine:
            self.engine.register()

    def told(self) -> list[tuple[str, str, dict[str, str | int | float]]]:
        """Every watch event so far: kind, request, facts."""
        return [(event.kind, event.request_id, dict(event.facts)) for event in self.events()]

    def events(self) -> tuple[WatchEvent, ...]:
        return self.desk.watch.read(0).events

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events()]

    async def resident(self, *request_ids: str, owner: str = "") -> None:
        """Submit these and have them admitted."""
        for request_id in request_ids:
            self.desk.submit(submission(request_id, owner=owner))
        await self.engine.admit()
