"""Admission with engines in a world where orders and events take time, copies fail and groups are lost.

A `Watcher` compares after every event. While somebody wants to run and nobody from outside interferes, something
moves; when those outside leave it alone, everyone gets to the end.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from scheduler.admission import (
    Addressed,
    AdmissionCore,
    CapacityExhausted,
    GroupCapacity,
    HoldEnd,
    HoldTerms,
    NeverFits,
    TooManyChoices,
    WrongState,
)
from scheduler.messages import EngineEvent, Finished, FinishReason, Submission
from tests.scheduler.admission.watcher import Watcher

STEP_S = 0.03


class Engine(Protocol):
    """`generated` tokens so far; `deferrals`: orders that found no room."""

    capacity: GroupCapacity
    generated: int
    deferrals: int

    def receive(self, orders: list[Addressed]) -> None: ...

    def step(self) -> list[EngineEvent]: ...

    def check(self) -> None:
        """Never past its pages, arena and seats, and nothing with two owners."""
        ...

    @property
    def living(self) -> list[str]: ...

    @property
    def parked(self) -> dict[str, tuple[int, int, int]]:
        """Tokens, living choices and pages to hold of those that lie parked."""
        ...

    @property
    def recomputes_now(self) -> bool:
        """Tokens are computed that nobody will hear of."""
        ...

    def check_empty(self) -> None:
        """It has given everything back."""
        ...


Maker = Callable[[GroupCapacity, int, Callable[[str], bool]], Engine]


@dataclass(frozen=True)
class Plot:
    """One group of a world. `make(capacity, arena_pages, copy_fails)` makes its engine, anew when it is lost."""

    capacity: GroupCapacity
    arena_pages: int
    make: Maker

    @property
    def may_exhaust(self) -> bool:
        return not self.capacity.recompute and self.arena_pages < 400


class World:
    """`most_idle_steps`: a copy out and in, the backoff, a failed park's second, the engine's own patience."""

    def __init__(self, plots: list[Plot], most_idle_steps: int = 150) -> None:
        self.core = AdmissionCore()
        self.watcher = Watcher(self.core)
        self.now = 0.0
        self.steps = self.idle_steps = self.lost_tokens = 0
        self.most_idle_steps = most_idle_steps
        self.event_lag = self.order_lag = self.failing_copies = 0
        self.copies_failed = False
        self.may_end_badly = any(plot.may_exhaust for plot in plots)
        self.may_defer = False
        self.subs: dict[str, Submission] = {}
        self.cancelled: set[str] = set()
        self.ended: dict[str, FinishReason] = {}
        self.plots = {plot.capacity.group_id: plot for plot in plots}
        self.engines: dict[str, Engine] = {}
        self.reports: dict[str, deque[tuple[int, EngineEvent]]] = {}
        self.orders: dict[str, deque[tuple[int, Addressed]]] = {}
        for plot in plots:
            self._add(plot)

    def _add(self, plot: Plot) -> None:
        group_id = plot.capacity.group_id
        self.core.add_group(plot.capacity)
        self.engines[group_id] = plot.make(plot.capacity, plot.arena_pages, self._copy_fails)
        self.reports[group_id], self.orders[group_id] = deque(), deque()

    # ---- those outside

    @property
    def alive(self) -> list[str]:
        return sorted(self.watcher.alive)

    @property
    def held(self) -> list[str]:
        return sorted(self.watcher.held)

    def submit(self, sub: Submission) -> bool:
        """Whether it was taken; exactly what can ever fit is, but where the arena is full and recompute is off."""
        fits = any(_fits(engine.capacity, len(sub.prompt_tokens), sub.n) for engine in self.engines.values())
        try:
            orders = self.core.submit(sub, self.now)
        except (NeverFits, TooManyChoices):
            assert not fits
            return False
        except CapacityExhausted:
            assert fits and (self.may_end_badly or self.copies_failed)
            return False
        assert fits
        self.subs[sub.request_id] = sub
        self.watcher.takes(sub.request_id)
        self._ordered(orders)
        return True

    def cancel(self, request_id: str) -> None:
        self.cancelled.add(request_id)
        orders = self.core.cancel(request_id, self.now)
        self.watcher.cancels(request_id)
        self._ordered(orders)

    def park(self, request_id: str, terms: HoldTerms) -> None:
        if terms.then is HoldEnd.CANCEL:
            self.cancelled.add(request_id)
        if (orders := self._try(lambda: self.core.park(request_id, terms, self.now))) is not None:
            self.watcher.holds(request_id, terms, self.now)
            self._ordered(orders)

    def unpark(self, request_id: str) -> None:
        if (orders := self._try(lambda: self.core.unpark(request_id, self.now))) is not None:
            self.watcher.held.pop(request_id, None)
            self._ordered(orders)

    def set_priority(self, request_id: str, priority: int) -> None:
        if (orders := self._try(lambda: self.core.set_priority(request_id, priority, self.now))) is not None:
            self._ordered(orders)

    def _try(self, order: Callable[[], list[Addressed]]) -> list[Addressed] | None:
        try:
            return order()
        except WrongState as refused:
            assert refused.state == "ending"
            return None

    def lag(self, events: int, orders: int) -> None:
        """From now on admission hears so many steps late, and engines obey so many steps late."""
        self.event_lag, self.order_lag = events, orders
        self.may_defer |= events + orders > 0

    def fail_copies(self, count: int) -> None:
        """The next so many."""
        self.failing_copies = count
        self.copies_failed |= count > 0

    def wait(self, seconds: float) -> None:
        """The clock jumps."""
        self.now += seconds
        self._tick()
        self.watcher.world_changed()

    def lose(self, group_id: str) -> None:
        """An engine is lost with all it had, and a new one takes its name."""
        for request_id in self.core.remove_group(group_id, self.now):
            self.watcher.gone(request_id)
        self.lost_tokens += self.engines[group_id].generated
        self._add(self.plots[group_id])
        self._tick()

    # ---- time

    def step(self) -> None:
        self.steps += 1
        self.now += STEP_S
        before = self.generated
        for group_id, engine in self.engines.items():
            orders = self.orders[group_id]
            while orders and orders[0][0] <= self.steps:
                engine.receive([orders.popleft()[1]])
            self.reports[group_id].extend((self.steps + self.event_lag, event) for event in engine.step())
            reports = self.reports[group_id]
            while reports and reports[0][0] <= self.steps:
                self._hear(reports.popleft()[1])
        self._tick()
        wants_to_run = any(request_id not in self.watcher.held for request_id in self.watcher.alive)
        moves = self.generated > before or any(engine.recomputes_now for engine in self.engines.values())
        self.idle_steps = 0 if moves or not wants_to_run else self.idle_steps + 1
        assert self.idle_steps <= self.most_idle_steps, "nobody moves"

    def settle(self) -> None:
        """Left alone, holds ended: everyone comes to the end, and everything is given back."""
        self.event_lag = self.order_lag = self.failing_copies = 0
        for request_id in self.held:
            self.unpark(request_id)
        bound = 2000 + 900 * len(self.watcher.alive)
        while self.watcher.alive:
            self.step()
            bound -= 1
            assert bound > 0, "it takes too long"
        for engine in self.engines.values():
            engine.check_empty()
        for request_id, reason in self.ended.items():
            good = {FinishReason.LENGTH, FinishReason.STOP} | (
                {FinishReason.CANCELLED} if request_id in self.cancelled else set()
            )
            assert reason in good or self.may_end_badly or self.copies_failed, f"{request_id}: {reason}"

    @property
    def generated(self) -> int:
        return self.lost_tokens + sum(engine.generated for engine in self.engines.values())

    # ---- what must hold

    def check(self) -> None:
        self.watcher.agrees(self.now)
        for engine in self.engines.values():
            engine.check()
            for request_id in engine.living:
                # It may have been deferred, or have ended, and admission has not heard of it yet; never the reverse.
                row = self.core.row(request_id, self.now)
                assert row is None or row.state != "queued"
            for request_id, lies in engine.parked.items():
                record = self.core._books.records.get(request_id)
                if record is not None and record.state == "parked":
                    assert (record.num_tokens, record.seats, record.known_pages) == lies
        if not (self.may_defer or self.copies_failed):
            assert self.deferrals == 0, "something was promised twice"

    @property
    def deferrals(self) -> int:
        return sum(engine.deferrals for engine in self.engines.values())

    # ---- the wires

    def _hear(self, event: EngineEvent) -> None:
        self.watcher.hears(event, self.generated, self.now)
        if isinstance(event, Finished):
            self.ended[event.request_id] = event.reason
        self._dispatch(self.core.on_event(event, self.now))
        self.check()

    def _tick(self) -> None:
        due = self.watcher.due(self.now)
        orders = self.core.tick(self.now)
        self.watcher.ends_holds(due)
        self._dispatch(orders)

    def _ordered(self, orders: list[Addressed]) -> None:
        """What an order from outside came to."""
        self.idle_steps = 0
        self.watcher.world_changed()
        self._dispatch(orders)

    def _dispatch(self, orders: list[Addressed]) -> None:
        self.watcher.judges(orders, self.now)
        for order in orders:
            self.orders[order.group_id].append((self.steps + self.order_lag, order))

    def _copy_fails(self, _: str) -> bool:
        self.failing_copies -= 1
        return self.failing_copies >= 0


def _fits(capacity: GroupCapacity, prompt: int, n: int) -> bool:
    """By hand: the full pages of all prompt tokens but the last once, then what each choice needs for one token."""
    size = capacity.page_size
    shared = (prompt - 1) // size
    pages = shared + n * (-(-(prompt + 1) // size) - shared)
    return n <= capacity.seats and prompt + 1 <= capacity.max_model_len and pages <= capacity.num_pages
