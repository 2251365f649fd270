"""Admission's desk in a test: one core, engines played by hand, a clock moved by hand, orders read as short lines.

Every order counts as carried out at once unless `desk.is_deaf` is set. A resident's pages follow from its tokens; of a
family the tokens told are those of each living choice.
"""

from dataclasses import dataclass, field

from kv import pages_for
from scheduler.admission import (
    Addressed,
    AdmissionCore,
    AdmissionPolicy,
    GroupCapacity,
    GroupRow,
    HoldEnd,
    HoldTerms,
    RequestRow,
)
from scheduler.messages import (
    Admit,
    Deferred,
    EngineEvent,
    Finished,
    FinishReason,
    GroupLoad,
    Park,
    Parked,
    ParkFailed,
    ParkMode,
    ParkReason,
    Pressure,
    Progress,
    ResidentLoad,
    Restore,
    Restored,
    Submission,
)
from tests.scheduler.admission.paper_life import submission

PAGE = 16


@dataclass
class Side:
    """What the engine of one group would say: tokens of residents, pages of the parked, the arena's size."""

    capacity: GroupCapacity
    arena: int
    residents: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    parked: dict[str, tuple[int, int]] = field(default_factory=dict)
    families: dict[str, Submission] = field(default_factory=dict)
    seats: dict[str, int] = field(default_factory=dict)
    last_command: int = 0

    def pages(self, request_id: str) -> int:
        return self.held.get(request_id, self.pages_to_hold(request_id))

    def pages_to_hold(self, request_id: str) -> int:
        tokens = self.residents[request_id]
        if (family := self.families.get(request_id)) is None:
            return pages_for(tokens, PAGE)
        shared = (len(family.prompt_tokens) - 1) // PAGE
        return shared + self.seats[request_id] * (pages_for(tokens, PAGE) - shared)

    def load(self) -> GroupLoad:
        total = self.capacity.num_pages
        return GroupLoad(
            group_id=self.capacity.group_id,
            last_command=self.last_command,
            pages_total=total,
            pages_free=total - sum(self.pages(request_id) for request_id in self.residents),
            arena_total=self.arena,
            arena_free=self.arena - sum(pages for _, pages in self.parked.values()),
            residents=tuple(
                ResidentLoad(
                    request_id=request_id,
                    num_tokens=tokens,
                    seats=self.seats.get(request_id, 1),
                    num_pages=self.pages(request_id),
                    pages_to_hold=self.pages_to_hold(request_id),
                )
                for request_id, tokens in self.residents.items()
            ),
        )


class Desk:
    """Every method that makes admission decide returns its orders: ["park b", "admit c"]; with several groups,
    ["admit c g2"]."""

    def __init__(
        self,
        *,
        pages: int = 64,
        seats: int = 8,
        arena: int = 1000,
        groups: tuple[str, ...] = ("g1",),
        max_model_len: int = 10_000,
        policy: AdmissionPolicy | None = None,
        **capacity: bool,
    ) -> None:
        self.core = AdmissionCore(policy)
        self.now = 0.0
        self.is_deaf = False
        self.sides: dict[str, Side] = {}
        self.reasons: dict[str, ParkReason] = {}
        for group_id in groups:
            self.add_group(group_id, pages=pages, seats=seats, arena=arena, max_model_len=max_model_len, **capacity)

    def add_group(
        self,
        group_id: str,
        *,
        pages: int = 64,
        seats: int = 8,
        arena: int = 1000,
        max_model_len: int = 10_000,
        **capacity: bool,
    ) -> None:
        told = GroupCapacity(
            group_id=group_id, num_pages=pages, page_size=PAGE, seats=seats, max_model_len=max_model_len, **capacity
        )
        self.core.add_group(told)
        self.sides[group_id] = Side(capacity=told, arena=arena)

    def wait(self, seconds: float) -> list[str]:
        self.now += seconds
        return self._read(self.core.tick(self.now))

    # ---- clients

    def submit(
        self, request_id: str, prompt: int = PAGE, *, priority: int = 0, max_tokens: int = 1000, n: int = 1
    ) -> list[str]:
        return self._read(self.core.submit(submission(request_id, prompt, max_tokens, priority, n), self.now))

    def park(self, request_id: str, deadline_s: float | None = None, then: HoldEnd = HoldEnd.UNPARK) -> list[str]:
        return self._read(self.core.park(request_id, HoldTerms(deadline_s, then), self.now))

    def unpark(self, request_id: str) -> list[str]:
        return self._read(self.core.unpark(request_id, self.now))

    def set_priority(self, request_id: str, priority: int) -> list[str]:
        return self._read(self.core.set_priority(request_id, priority, self.now))

    def cancel(self, request_id: str) -> list[str]:
        return self._read(self.core.cancel(request_id, self.now))

    # ---- engines

    def grow(self, tokens: dict[str, int]) -> list[str]:
        """Residents have so many tokens now; every group accounts for itself."""
        for side in self.sides.values():
            side.residents.update({key: value for key, value in tokens.items() if key in side.residents})
        return [line for group_id in self.sides for line in self.progress(group_id)]

    def progress(self, group_id: str = "g1") -> list[str]:
        return self.say(Progress(load=self.sides[group_id].load()))

    def pressure(self, shortfall: int, group_id: str = "g1") -> list[str]:
        return self.say(Pressure(load=self.sides[group_id].load(), shortfall=shortfall))

    def parked(self, request_id: str, *, copied: bool = True) -> list[str]:
        side = self._side(request_id)
        num_pages = side.pages(request_id) if copied else 0
        pages_to_hold, tokens = side.pages_to_hold(request_id), side.residents.pop(request_id)
        side.parked[request_id] = (tokens, num_pages)
        event = Parked(
            load=side.load(),
            request_id=request_id,
            num_tokens=tokens,
            seats=side.seats.get(request_id, 1),
            pages_to_hold=pages_to_hold,
            num_pages=num_pages,
            mode=ParkMode.COPY if copied else ParkMode.RECOMPUTE,
            reason=self.reasons.pop(request_id, ParkReason.PRESSURE),
        )
        return self.say(event)

    def park_failed(self, request_id: str) -> list[str]:
        load = self._side(request_id).load()
        return self.say(ParkFailed(load=load, request_id=request_id, reason="no arena room"))

    def restored(self, request_id: str, mode: ParkMode = ParkMode.COPY) -> list[str]:
        side = self._side(request_id)
        side.parked.pop(request_id, None)
        return self.say(Restored(load=side.load(), request_id=request_id, mode=mode))

    def deferred(self, request_id: str) -> list[str]:
        side = self._side(request_id)
        side.residents.pop(request_id)
        return self.say(Deferred(load=side.load(), request_id=request_id))

    def finished(self, request_id: str, reason: FinishReason = FinishReason.STOP) -> list[str]:
        side = self._side(request_id)
        lay, _ = side.parked.pop(request_id, (0, 0))
        tokens = side.residents.pop(request_id, lay)
        return self.say(Finished(load=side.load(), request_id=request_id, num_tokens=tokens, reason=reason))

    def say(self, event: EngineEvent) -> list[str]:
        return self._read(self.core.on_event(event, self.now))

    def hears(self, request_id: str, number: int, tokens: int) -> None:
        """An engine that was deaf carries out everything up to `number`, which placed that request."""
        side = next(iter(self.sides.values()))
        side.last_command = number
        side.residents[request_id] = tokens

    # ---- looking in

    def row(self, request_id: str) -> RequestRow:
        return next(row for row in self.core.status(self.now).requests if row.request_id == request_id)

    def state(self, request_id: str) -> str:
        return self.row(request_id).state

    def group(self, group_id: str = "g1") -> GroupRow:
        return next(row for row in self.core.status(self.now).groups if row.group_id == group_id)

    def live(self) -> set[str]:
        return {row.request_id for row in self.core.status(self.now).requests}

    # ---- inside

    def _side(self, request_id: str) -> Side:
        return next(side for side in self.sides.values() if request_id in side.residents or request_id in side.parked)

    def _read(self, orders: list[Addressed]) -> list[str]:
        self.core.check_integrity()
        return [self._take(order) for order in orders]

    def _take(self, order: Addressed) -> str:
        side, command = self.sides[order.group_id], order.command
        request_id = command.submission.request_id if isinstance(command, Admit) else command.request_id
        if not self.is_deaf:
            assert command.number == side.last_command + 1, "a command number is missing or repeated"
            side.last_command = command.number
            if isinstance(command, Admit):
                side.residents[request_id] = len(command.submission.prompt_tokens)
                if command.submission.n > 1:
                    side.families[request_id] = command.submission
                    side.seats[request_id] = command.submission.n
            elif isinstance(command, Restore):
                side.residents[request_id] = side.parked[request_id][0]
        line = f"{type(command).__name__.lower()} {request_id}"
        if isinstance(command, Park):
            self.reasons[request_id] = command.reason
        return line if len(self.sides) == 1 else f"{line} {order.group_id}"


def two_residents() -> Desk:
    desk = Desk(seats=2)
    desk.submit("a")
    desk.submit("b")
    assert desk.grow({"a": 100, "b": 50}) == []
    return desk


def held_desk() -> Desk:
    """`a` is parked and held, `b` runs."""
    desk = two_residents()
    assert desk.park("a") == ["park a"]
    assert desk.parked("a") == []
    return desk
