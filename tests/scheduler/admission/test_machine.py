"""Random lives against engines on paper: admission hears late, copies fail, clients leave; nothing is ever lost.

After every event: books add up, no engine holds more than it has, no pressure leaves a group without a runnable
request, nobody is lost or in two places. At the end of every run clients stop, copies succeed again, and everyone gets
to the end.
"""

from collections import deque

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.admission import Addressed, AdmissionCore, AdmissionRefused, GroupCapacity, NeverFits
from scheduler.messages import EngineEvent, Finished, FinishReason, Park, ParkReason
from tests.scheduler.admission.paper_engine import PaperEngine, submission

PAGE = 16
STEP_S = 0.03
# Nobody moves for longer than this: a copy out and in, the backoff, a failed park's second, the engine's own patience.
MOST_IDLE_STEPS = 150


class AdmissionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = AdmissionCore()
        self.now = 0.0
        self.engines: dict[str, PaperEngine] = {}
        self.reports: dict[str, deque[tuple[int, EngineEvent]]] = {}
        self.orders: dict[str, deque[tuple[int, Addressed]]] = {}
        self.steps = 0
        self.event_lag = self.order_lag = 0
        self.was_late = self.copies_failed = self.arena_is_small = False
        self.failing_parks = self.failing_restores = 0
        self.submitted = 0
        self.expected: set[str] = set()
        self.cancelled: set[str] = set()

    @initialize(
        sizes=st.lists(
            st.tuples(st.integers(4, 40), st.integers(1, 6), st.sampled_from([0, 5, 400, 400, 400])),
            min_size=1,
            max_size=2,
        )
    )
    def start(self, sizes: list[tuple[int, int, int]]) -> None:
        for index, (pages, seats, arena) in enumerate(sizes):
            capacity = GroupCapacity(
                group_id=f"g{index}", num_pages=pages, page_size=PAGE, seats=seats, max_model_len=500, recompute=False
            )
            self.core.add_group(capacity)
            self.engines[capacity.group_id] = PaperEngine(
                capacity=capacity, arena_pages=arena, park_fails=self._park_fails, restore_fails=self._restore_fails
            )
            self.reports[capacity.group_id] = deque()
            self.orders[capacity.group_id] = deque()
            self.arena_is_small |= arena < 400

    # ---- what happens

    @rule(prompt=st.integers(1, 400), max_tokens=st.integers(1, 300), priority=st.integers(-1, 2))
    def submit(self, prompt: int, max_tokens: int, priority: int) -> None:
        self.submitted += 1
        request_id = f"r{self.submitted}"
        longest = max(min(engine.capacity.pool_tokens, 500) for engine in self.engines.values())
        try:
            orders = self.core.submit(submission(request_id, prompt, max_tokens, priority), self.now)
        except NeverFits:
            assert prompt + 1 > longest
            return
        except AdmissionRefused as refused:
            raise AssertionError("nothing else is refused here") from refused
        assert prompt + 1 <= longest
        self.expected.add(request_id)
        self._dispatch(orders)

    @rule(count=st.integers(2, 5), priority=st.integers(-1, 2))
    def submit_alike(self, count: int, priority: int) -> None:
        for _ in range(count):
            self.submit(prompt=3 * PAGE, max_tokens=120, priority=priority)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.expected)))
        self.cancelled.add(request_id)
        if self._row_states().get(request_id) == "queued":
            self.expected.discard(request_id)
        self._dispatch(self.core.cancel(request_id, self.now))

    @rule(count=st.integers(1, 40))
    def step(self, count: int) -> None:
        for _ in range(count):
            self._step()

    @rule(lag=st.integers(0, 4))
    def hear_late(self, lag: int) -> None:
        self.event_lag = lag
        self.was_late |= lag > 0

    @rule(lag=st.integers(0, 4))
    def obey_late(self, lag: int) -> None:
        self.order_lag = lag
        self.was_late |= lag > 0

    @rule(parks=st.integers(0, 3), restores=st.integers(0, 3))
    def fail_copies(self, parks: int, restores: int) -> None:
        self.failing_parks, self.failing_restores = parks, restores
        self.copies_failed |= parks + restores > 0

    @rule(seconds=st.floats(0.0, 40.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._dispatch(self.core.tick(self.now))

    # ---- what must hold

    @invariant()
    def nobody_is_lost(self) -> None:
        self.core.check_integrity()
        states = self._row_states()
        assert set(states) == self.expected
        for engine in self.engines.values():
            engine.check()
            for request_id in engine.lives:
                # It may have been deferred, or have ended, and admission has not heard of it yet; never the reverse.
                assert states.get(request_id) != "queued"

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        if not (self.was_late or self.copies_failed):
            assert sum(engine.deferrals for engine in self.engines.values()) == 0

    def teardown(self) -> None:
        """Everyone still alive comes to the end, however the run has left things."""
        self.event_lag = self.order_lag = self.failing_parks = self.failing_restores = 0
        idle_steps = 0
        bound = 2000 + 800 * len(self.expected)
        while self.expected and self.steps < 10**6:
            before = self._generated(), len(self.expected)
            self._step()
            idle_steps = 0 if (self._generated(), len(self.expected)) != before else idle_steps + 1
            assert idle_steps <= MOST_IDLE_STEPS, "nobody moves"
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
        for group_id, engine in self.engines.items():
            orders = self.orders[group_id]
            while orders and orders[0][0] <= self.steps:
                engine.receive([orders.popleft()[1]])
            self.reports[group_id].extend((self.steps + self.event_lag, event) for event in engine.step())
            reports = self.reports[group_id]
            while reports and reports[0][0] <= self.steps:
                self._hear(reports.popleft()[1])

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, Finished):
            self.expected.discard(event.request_id)
        orders = self.core.on_event(event, self.now)
        self._dispatch(orders)
        group_id = event.load.group_id
        if any(isinstance(order.command, Park) and order.command.reason is ParkReason.PRESSURE for order in orders):
            seated = self.core._books.ledgers[group_id].seated.values()
            runnable = [record for record in seated if record.state == "resident" and not record.cancelling]
            assert runnable, "pressure left nobody runnable"
        self.nobody_is_lost()

    def _dispatch(self, orders: list[Addressed]) -> None:
        for order in orders:
            self.orders[order.group_id].append((self.steps + self.order_lag, order))

    def _row_states(self) -> dict[str, str]:
        return {request_id: record.state.value for request_id, record in self.core._books.records.items()}

    def _generated(self) -> int:
        return sum(engine.generated for engine in self.engines.values())

    def _park_fails(self, _: str) -> bool:
        self.failing_parks -= 1
        return self.failing_parks >= 0

    def _restore_fails(self, _: str) -> bool:
        self.failing_restores -= 1
        return self.failing_restores >= 0


TestAdmissionMachine = AdmissionMachine.TestCase
TestAdmissionMachine.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
