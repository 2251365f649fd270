"""Random lives against engines on paper, and against the real one over fake ranks: admission hears late, copies fail,
clients leave, hold and change their minds, groups are lost; nothing else ever is.

After every event: books add up, no engine holds more than it has, whoever was passed was passed at most eight times,
nobody fresh enters before a parked one of its tier, equals never displace each other, no pressure leaves a group
without a runnable request, nobody is parked twice without a token between, nobody is lost or in two places.
"""

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.admission import GroupCapacity, HoldEnd, HoldTerms
from tests.scheduler.admission.paper_engine import PaperEngine
from tests.scheduler.admission.paper_life import submission
from tests.scheduler.admission.real_engine import RealEngine, chat
from tests.scheduler.admission.world import Maker, Plot, World

PAGE = 16


def plot(index: int, size: tuple[int, int, int, bool], make: Maker = PaperEngine) -> Plot:
    pages, seats, arena, recompute = size
    capacity = GroupCapacity(
        group_id=f"g{index}", num_pages=pages, page_size=PAGE, seats=seats, max_model_len=500, recompute=recompute
    )
    return Plot(capacity=capacity, arena_pages=arena, make=make)


class AdmissionMachine(RuleBasedStateMachine):
    make: Maker = PaperEngine
    most_idle_steps = 150
    has_own_forecast = False

    @initialize(
        sizes=st.lists(
            st.tuples(st.integers(4, 24), st.integers(1, 6), st.sampled_from([0, 5, 400, 400]), st.booleans()),
            min_size=1,
            max_size=2,
        )
    )
    def start(self, sizes: list[tuple[int, int, int, bool]]) -> None:
        plots = [plot(index, size, type(self).make) for index, size in enumerate(sizes)]
        self.world = World(plots, self.most_idle_steps)
        self.world.may_defer = self.has_own_forecast
        self.submitted = 0

    @rule(
        prompt=st.integers(1, 250),
        max_tokens=st.integers(1, 300),
        priority=st.integers(-1, 2),
        n=st.integers(1, 3),
        stops=st.booleans(),
    )
    def submit(self, prompt: int, max_tokens: int, priority: int, n: int, *, stops: bool) -> None:
        self.submitted += 1
        self.world.submit(chat(f"r{self.submitted}", prompt, max_tokens, priority, n, stops=stops))

    @rule(kinds=st.lists(st.tuples(st.sampled_from([1, 1, 2]), st.integers(0, 1)), min_size=3, max_size=6))
    def submit_many(self, kinds: list[tuple[int, int]]) -> None:
        for n, priority in kinds:
            self.submit(prompt=2 * PAGE, max_tokens=120, priority=priority, n=n, stops=n > 1)

    @precondition(lambda self: self.world.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.world.cancel(self._one_of(data))

    @precondition(lambda self: self.world.alive)
    @rule(data=st.data(), deadline_s=st.none() | st.floats(0.1, 50.0), then=st.sampled_from(HoldEnd))
    def park(self, data: st.DataObject, deadline_s: float | None, then: HoldEnd) -> None:
        self.world.park(self._one_of(data), HoldTerms(deadline_s, then))

    @precondition(lambda self: self.world.held)
    @rule(data=st.data())
    def unpark(self, data: st.DataObject) -> None:
        self.world.unpark(data.draw(st.sampled_from(self.world.held)))

    @precondition(lambda self: self.world.alive)
    @rule(data=st.data(), priority=st.integers(-2, 4))
    def set_priority(self, data: st.DataObject, priority: int) -> None:
        self.world.set_priority(self._one_of(data), priority)

    @rule(count=st.integers(1, 60))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.world.step()

    @rule(events=st.integers(0, 4), orders=st.integers(0, 4))
    def lag(self, events: int, orders: int) -> None:
        self.world.lag(events, orders)

    @rule(count=st.integers(0, 4))
    def fail_copies(self, count: int) -> None:
        self.world.fail_copies(count)

    @rule(seconds=st.floats(0.0, 40.0))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @precondition(lambda self: self.submitted > 8)
    @rule(data=st.data())
    def lose_a_group(self, data: st.DataObject) -> None:
        self.world.lose(data.draw(st.sampled_from(sorted(self.world.plots))))

    @invariant()
    def nobody_is_lost(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.settle()

    def _one_of(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.world.alive))


class RealAdmissionMachine(AdmissionMachine):
    """The engine waits for 10 s before it helps itself, and has a forecast of its own."""

    make = RealEngine
    most_idle_steps = 500
    has_own_forecast = True

    def teardown(self) -> None:
        super().teardown()
        for engine in self.world.engines.values():
            assert isinstance(engine, RealEngine)
            engine.check_texts(self.world.subs)


QUICK = settings(
    max_examples=6,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestAdmissionMachine = AdmissionMachine.TestCase
TestAdmissionMachine.settings = QUICK
TestRealAdmissionMachine = RealAdmissionMachine.TestCase
TestRealAdmissionMachine.settings = QUICK


@pytest.mark.parametrize("calm", [True, False], ids=["nothing late", "late and failing"])
@pytest.mark.parametrize(
    ("pages", "seats", "arena", "recompute"),
    [
        pytest.param(24, 6, 4000, True, id="ample arena"),
        pytest.param(24, 6, 30, True, id="copies and recomputes"),
        pytest.param(24, 6, 0, True, id="recompute only"),
        pytest.param(24, 6, 30, False, id="no recompute and a small arena"),
        pytest.param(48, 4, 4000, False, id="few seats"),
    ],
)
def test_a_crowded_day(pages: int, seats: int, arena: int, recompute: bool, calm: bool) -> None:
    """Far more wish to run than can, all day, while those outside meddle."""
    draw = random.Random(seats * pages + arena)
    world = World([plot(0, (pages, seats, arena, recompute)), plot(1, (pages // 2, seats - 1, arena, recompute))])
    did: Counter[str] = Counter()
    for turn in range(250):
        world.step()
        if len(world.alive) < 14:
            n, priority = draw.choice([1, 1, 1, 2, 3]), draw.choice([0, 0, 0, 1, 2])
            prompt = draw.choice([draw.randrange(1, 60), draw.randrange(1, 60), draw.randrange(150, 370)])
            world.submit(submission(f"r{turn}", prompt, draw.randrange(20, 200), priority, n))
        meddle(world, draw)
        if not calm and draw.random() < 0.02:
            world.fail_copies(draw.randrange(3))
        if not calm and draw.random() < 0.02:
            world.lag(draw.randrange(4), draw.randrange(4))
        did.update(row.state for row in world.core.status(world.now).requests)
    world.settle()
    assert min(did[state] for state in ("queued", "resident", "parking", "parked", "restoring")) > 0


def meddle(world: World, draw: random.Random) -> None:
    if draw.random() < 0.04:
        world.set_priority(draw.choice(world.alive), draw.randrange(-1, 4))
    if draw.random() < 0.04:
        world.park(draw.choice(world.alive), HoldTerms(draw.choice([None, 1.0, 5.0]), draw.choice(list(HoldEnd))))
    if draw.random() < 0.06 and world.held:
        world.unpark(draw.choice(world.held))
    if draw.random() < 0.01:
        world.cancel(draw.choice(world.alive))
    if draw.random() < 0.002 and len(world.engines) > 1:
        world.lose(draw.choice(sorted(world.engines)))


@pytest.mark.parametrize("seed", [5, 13, 18])
def test_few_long_ones_that_leave_early_and_urgent_ones_that_come_late(seed: int) -> None:
    """Shortages come and go with the same residents: whom one spared, the next one may not."""
    draw = random.Random(seed)
    world = World([plot(0, (24, 5, 4000, True))])
    for turn in range(600):
        world.step()
        if len(world.alive) < 4 and draw.random() < 0.1:
            world.submit(submission(f"r{turn}", draw.randrange(1, 60), 300, draw.choice([0, 0, 1, 3])))
        if world.alive and draw.random() < 0.015:
            world.cancel(draw.choice(world.alive))
        if draw.random() < 0.01:
            world.lag(draw.randrange(3), draw.randrange(3))
    world.settle()
