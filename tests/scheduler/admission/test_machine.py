"""Random lives against engines on paper: admission hears late, copies fail, clients leave, hold and change their minds,
groups are lost; nothing else ever is.

After every event: books add up, no engine holds more than it has, whoever was passed was passed at most eight times,
nobody fresh enters before a parked one of its tier, equals never displace each other, no pressure leaves a group
without a runnable request, nobody is parked twice without a token between, nobody is lost or in two places. While
somebody wants to run and nobody interferes, something moves. At the end of every run clients stop, copies succeed
again, holds end, and everyone gets to the end.
"""

from collections import deque

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
from scheduler.messages import EngineEvent, FinishReason
from tests.scheduler.admission.paper_engine import PaperEngine, submission
from tests.scheduler.admission.watcher import Watcher

PAGE = 16
STEP_S = 0.03
# Nobody moves for longer than this: a copy out and in, the backoff, a failed park's second, the engine's own patience.
MOST_IDLE_STEPS = 150

SIZES = st.lists(
    st.tuples(st.integers(4, 40), st.integers(1, 6), st.sampled_from([0, 5, 400, 400]), st.booleans()),
    min_size=1,
    max_size=2,
)


class AdmissionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = AdmissionCore()
        self.watcher = Watcher(self.core)
        self.now = 0.0
        self.engines: dict[str, PaperEngine] = {}
        self.reports: dict[str, deque[tuple[int, EngineEvent]]] = {}
        self.orders: dict[str, deque[tuple[int, Addressed]]] = {}
        self.steps = self.idle_steps = self.lost_tokens = 0
        self.event_lag = self.order_lag = 0
        self.may_defer = self.copies_failed = self.arena_is_small = False
        self.failing_parks = self.failing_restores = 0
        self.submitted = 0
        self.cancelled: set[str] = set()

    @initialize(sizes=SIZES)
    def start(self, sizes: list[tuple[int, int, int, bool]]) -> None:
        for index, (pages, seats, arena, recompute) in enumerate(sizes):
            capacity = GroupCapacity(
                group_id=f"g{index}",
                num_pages=pages,
                page_size=PAGE,
                seats=seats,
                max_model_len=500,
                recompute=recompute,
            )
            self._add(capacity, arena)
            self.arena_is_small |= arena < 400 and not recompute

    def _add(self, capacity: GroupCapacity, arena: int) -> None:
        self.core.add_group(capacity)
        self.engines[capacity.group_id] = PaperEngine(
            capacity=capacity, arena_pages=arena, park_fails=self._park_fails, restore_fails=self._restore_fails
        )
        self.reports[capacity.group_id] = deque()
        self.orders[capacity.group_id] = deque()

    # ---- what happens

    @rule(prompt=st.integers(1, 400), max_tokens=st.integers(1, 300), priority=st.integers(-1, 2), n=st.integers(1, 3))
    def submit(self, prompt: int, max_tokens: int, priority: int, n: int) -> None:
        self.submitted += 1
        sub = submission(f"r{self.submitted}", prompt, max_tokens, priority, n)
        fits = any(_fits(engine.capacity, prompt, n) for engine in self.engines.values())
        try:
            orders = self.core.submit(sub, self.now)
        except (NeverFits, TooManyChoices):
            assert not fits
            return
        except CapacityExhausted:
            assert fits and (self.arena_is_small or self.copies_failed)
            return
        assert fits
        self.watcher.takes(sub.request_id)
        self._ordered(orders)

    @rule(count=st.integers(2, 5), priority=st.integers(-1, 2))
    def submit_alike(self, count: int, priority: int) -> None:
        for _ in range(count):
            self.submit(prompt=3 * PAGE, max_tokens=120, priority=priority, n=1)

    @precondition(lambda self: self.watcher.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = self._one_of(data)
        self.cancelled.add(request_id)
        orders = self.core.cancel(request_id, self.now)
        self.watcher.cancels(request_id)
        self._ordered(orders)

    @precondition(lambda self: self.watcher.alive)
    @rule(data=st.data(), deadline_s=st.none() | st.floats(0.1, 50.0), then=st.sampled_from(HoldEnd))
    def park(self, data: st.DataObject, deadline_s: float | None, then: HoldEnd) -> None:
        request_id, terms = self._one_of(data), HoldTerms(deadline_s, then)
        self.cancelled |= {request_id} if then is HoldEnd.CANCEL else set()
        try:
            orders = self.core.park(request_id, terms, self.now)
        except WrongState as refused:
            assert refused.state == "ending"
            return
        self.watcher.holds(request_id, terms, self.now)
        self._ordered(orders)

    @precondition(lambda self: self.watcher.held)
    @rule(data=st.data())
    def unpark(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.watcher.held)))
        try:
            orders = self.core.unpark(request_id, self.now)
        except WrongState as refused:
            assert refused.state == "ending"
            return
        del self.watcher.held[request_id]
        self._ordered(orders)

    @precondition(lambda self: self.watcher.alive)
    @rule(data=st.data(), priority=st.integers(-2, 4))
    def set_priority(self, data: st.DataObject, priority: int) -> None:
        try:
            orders = self.core.set_priority(self._one_of(data), priority, self.now)
        except WrongState as refused:
            assert refused.state == "ending"
            return
        self._ordered(orders)

    @rule(count=st.integers(1, 40))
    def step(self, count: int) -> None:
        for _ in range(count):
            self._step()

    @rule(events=st.integers(0, 4), orders=st.integers(0, 4))
    def lag(self, events: int, orders: int) -> None:
        self.event_lag, self.order_lag = events, orders
        self.may_defer |= events + orders > 0

    @rule(parks=st.integers(0, 3), restores=st.integers(0, 3))
    def fail_copies(self, parks: int, restores: int) -> None:
        self.failing_parks, self.failing_restores = parks, restores
        self.copies_failed |= parks + restores > 0

    @rule(seconds=st.floats(0.0, 40.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._tick()
        self.watcher.world_changed()

    @rule(data=st.data())
    def lose_a_group(self, data: st.DataObject) -> None:
        group_id = data.draw(st.sampled_from(sorted(self.engines)))
        engine = self.engines[group_id]
        for request_id in self.core.remove_group(group_id, self.now):
            self.watcher.gone(request_id)
        self.lost_tokens += engine.generated
        self._add(engine.capacity, engine.arena_pages)
        self._tick()

    # ---- what must hold

    @invariant()
    def nobody_is_lost(self) -> None:
        self.watcher.agrees(self.now)
        for engine in self.engines.values():
            engine.check()
            for request_id in engine.lives:
                # It may have been deferred, or have ended, and admission has not heard of it yet; never the reverse.
                row = self.core.row(request_id, self.now)
                assert row is None or row.state != "queued"

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        if not (self.may_defer or self.copies_failed):
            assert sum(engine.deferrals for engine in self.engines.values()) == 0

    def teardown(self) -> None:
        """Everyone still alive comes to the end, however the run has left things."""
        self.event_lag = self.order_lag = self.failing_parks = self.failing_restores = 0
        for request_id in sorted(self.watcher.held):
            if not self._is_ending(request_id):
                del self.watcher.held[request_id]
                self._ordered(self.core.unpark(request_id, self.now))
        bound = 2000 + 900 * len(self.watcher.alive)
        while self.watcher.alive:
            self._step()
            bound -= 1
            assert bound > 0, "it takes too long"
        for engine in self.engines.values():
            assert not engine.lives
            assert engine.pages_free == engine.capacity.num_pages
            for request_id, reason in engine.ended.items():
                good = {FinishReason.LENGTH} | ({FinishReason.CANCELLED} if request_id in self.cancelled else set())
                assert reason in good or self.arena_is_small or self.copies_failed, f"{request_id}: {reason}"

    # ---- the wires

    def _step(self) -> None:
        self.steps += 1
        self.now += STEP_S
        before = self._generated()
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
        behind = any(life.behind > 0 for engine in self.engines.values() for life in engine.lives.values())
        moves = self._generated() > before or behind or not wants_to_run
        self.idle_steps = 0 if moves else self.idle_steps + 1
        assert self.idle_steps <= MOST_IDLE_STEPS, "nobody moves"

    def _hear(self, event: EngineEvent) -> None:
        self.watcher.hears(event, self._generated())
        orders = self.core.on_event(event, self.now)
        self._dispatch(orders)
        self.nobody_is_lost()

    def _tick(self) -> None:
        cancelling = {row.request_id for row in self.core.status(self.now).requests if row.cancelling}
        orders = self.core.tick(self.now)
        self.watcher.time_is(self.now, cancelling)
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

    def _one_of(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.watcher.alive)))

    def _is_ending(self, request_id: str) -> bool:
        row = self.core.row(request_id, self.now)
        return row is None or row.cancelling

    def _generated(self) -> int:
        return self.lost_tokens + sum(engine.generated for engine in self.engines.values())

    def _park_fails(self, _: str) -> bool:
        self.failing_parks -= 1
        return self.failing_parks >= 0

    def _restore_fails(self, _: str) -> bool:
        self.failing_restores -= 1
        return self.failing_restores >= 0


def _fits(capacity: GroupCapacity, prompt: int, n: int) -> bool:
    """By hand: the full pages of all prompt tokens but the last once, then what each choice needs for one token."""
    shared = (prompt - 1) // PAGE
    pages = shared + n * (-(-(prompt + 1) // PAGE) - shared)
    return n <= capacity.seats and prompt + 1 <= capacity.max_model_len and pages <= capacity.num_pages


TestAdmissionMachine = AdmissionMachine.TestCase
TestAdmissionMachine.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
