"""Engine and admission together, messages take their time: whatever is asked of a tiny pool, all of it ends."""

from collections import deque
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.admission import Addressed, AdmissionCore, AdmissionPolicy, GroupCapacity
from scheduler.messages import Command, FinishReason, Notice
from scheduler.plan import CopyIn, CopyOut, CopyOutcome
from tests.scheduler.engine.rig import Rig, submission


@dataclass(frozen=True)
class Job:
    """A request that comes in a turn; `cancel_turn` after it has come, if its client goes away."""

    turn: int
    prompt: int
    max_tokens: int
    priority: int = 0
    cancel_turn: int | None = None
    n: int = 1


class House:
    """One engine, one admission. Commands take `way` turns to arrive, events too."""

    def __init__(
        self,
        *,
        pages: int,
        arena: int,
        seats: int,
        inflight: int,
        way: int,
        recompute: bool = False,
        copies_fail_every: int = 0,
    ) -> None:
        self.spoils = copies_fail_every
        self.spoilt = (CopyOutcome.FAILED, CopyOutcome.CORRUPT)
        self.rig = Rig(
            pages=pages,
            arena=arena,
            running=seats,
            inflight=inflight,
            step_tokens=9,
            model_len=80,
            recompute=recompute,
            outcome_of=self.outcome,
        )
        self.admission = AdmissionCore(AdmissionPolicy(runway_tokens=8, deferred_backoff_s=0.05))
        self.capacity = GroupCapacity(
            group_id="group", num_pages=pages, page_size=4, seats=seats, max_model_len=80, recompute=recompute
        )
        self.admission.add_group(self.capacity)
        self.way = way
        self.turn = 0
        self.num_heard = 0
        self.commands: deque[tuple[int, Command]] = deque()
        self.words: deque[tuple[int, int]] = deque()

    def outcome(self, order: CopyOut | CopyIn) -> CopyOutcome:
        """Every so manieth copy goes wrong, one way and the other."""
        if self.spoils and order.copy_id % self.spoils == 0:
            return self.spoilt[order.copy_id // self.spoils % 2]
        return CopyOutcome.DONE

    def run(self, jobs: list[Job], turns: int = 6000) -> None:
        """Until every job has ended and the engine is idle."""
        for self.turn in range(turns):
            for number, job in enumerate(jobs):
                if job.turn == self.turn:
                    sub = replace(submission(f"r{number}", job.prompt, job.max_tokens, n=job.n), priority=job.priority)
                    self.rig.submissions[sub.request_id] = sub
                    self.send(self.admission.submit(sub, self.rig.now))
                if job.cancel_turn is not None and job.turn + job.cancel_turn == self.turn:
                    self.send(self.admission.cancel(f"r{number}", self.rig.now))
            self.carry()
            self.admission.check_integrity()
            if self.turn > max((job.turn for job in jobs), default=0) and self.is_quiet():
                return
        raise AssertionError(f"not at rest after {turns} turns: {self.admission.status(self.rig.now)}")

    def takes(self, job: Job) -> bool:
        """Whether it is not refused at the door."""
        return self.capacity.can_ever_hold(submission("r", job.prompt, job.max_tokens, n=job.n))

    def is_quiet(self) -> bool:
        known = self.admission.status(self.rig.now).requests
        return not (known or self.commands or self.words) and self.rig.core.is_idle

    def send(self, orders: list[Addressed]) -> None:
        self.commands.extend((self.turn + self.way, order.command) for order in orders)

    def carry(self) -> None:
        while self.commands and self.commands[0][0] <= self.turn:
            self.rig.core.post(self.commands.popleft()[1])
        self.rig.turn()
        for index in range(self.num_heard, len(self.rig.events)):
            self.words.append((self.turn + self.way, index))
        self.num_heard = len(self.rig.events)
        while self.words and self.words[0][0] <= self.turn:
            event = self.rig.events[self.words.popleft()[1]]
            self.send(self.admission.on_event(event, self.rig.now))
        self.send(self.admission.tick(self.rig.now))


jobs = st.lists(
    st.builds(
        Job,
        turn=st.integers(0, 60),
        prompt=st.integers(1, 30),
        max_tokens=st.integers(1, 40),
        priority=st.sampled_from([0, 0, 0, 1, 10]),
        cancel_turn=st.sampled_from([None, None, None, 0, 3, 20]),
        n=st.sampled_from([1, 1, 1, 2]),
    ),
    min_size=1,
    max_size=10,
)


@given(
    jobs=jobs,
    pages=st.sampled_from([8, 10, 16]),
    seats=st.sampled_from([2, 4, 8]),
    inflight=st.sampled_from([1, 2]),
    way=st.sampled_from([0, 1, 5]),
    arena=st.sampled_from([200, 200, 12, 0]),
    copies_fail_every=st.sampled_from([0, 0, 3]),
)
@example(jobs=[Job(0, 4, 40)] * 4, pages=8, seats=4, inflight=2, way=5, arena=200, copies_fail_every=0)
@settings(max_examples=50, deadline=None)
def test_every_request_ends_with_the_tokens_of_its_solo_run(
    *, jobs: list[Job], pages: int, seats: int, inflight: int, way: int, arena: int, copies_fail_every: int
) -> None:
    house = House(
        pages=pages,
        arena=arena,
        seats=seats,
        inflight=inflight,
        way=way,
        recompute=True,
        copies_fail_every=copies_fail_every,
    )
    jobs = [job for job in jobs if house.takes(job)]
    house.run(jobs)
    rig = house.rig
    for number, job in enumerate(jobs):
        name = f"r{number}"
        finishes = {rig.finish(name, choice) for choice in range(job.n)}
        if finishes & {None, FinishReason.CANCELLED}:
            assert job.cancel_turn is not None
            continue
        assert finishes == {FinishReason.LENGTH}
        shared = (job.prompt - 1) // 4 if job.n > 1 else 0
        of_pool = (shared + (pages - shared) // job.n) * 4 + 1
        num_tokens = min(job.max_tokens, 80 - job.prompt, of_pool - job.prompt)
        for choice in range(job.n):
            assert rig.tokens(name, choice) == rig.solo(name, num_tokens, choice)
    assert rig.free == (pages, arena) and rig.ranks.used_slots == set()


def test_four_streams_of_three_and_a_half_pools_all_end_and_the_urgent_one_is_never_parked() -> None:
    house = House(pages=16, arena=100, seats=4, inflight=2, way=1)
    house.run([Job(0, 8, 48), Job(0, 8, 48), Job(0, 8, 48, priority=10), Job(0, 8, 48)])
    rig = house.rig
    assert all(rig.tokens(f"r{number}") == rig.solo(f"r{number}") for number in range(4))
    assert rig.notices("r2") == []
    parks = [rig.said[f"r{number}"][-1].parks for number in range(4)]
    assert sum(parks) >= 2 and max(parks) <= 6, f"parks: {parks}"


@pytest.mark.parametrize("way", [0, 4])
def test_without_an_arena_and_without_recompute_only_as_many_fail_as_must(way: int) -> None:
    house = House(pages=16, arena=0, seats=4, inflight=2, way=way)
    house.run([Job(0, 8, 48)] * 4)
    finishes = [house.rig.finish(f"r{number}") for number in range(4)]
    assert finishes.count(FinishReason.LENGTH) >= 1
    for number, finish in enumerate(finishes):
        assert finish is FinishReason.LENGTH or "host RAM budget of 0 pages" in str(
            house.rig.said[f"r{number}"][-1].error
        )
    assert Notice.PARKED not in [notice for number in range(4) for notice in house.rig.notices(f"r{number}")]


@pytest.mark.parametrize("way", [0, 4])
def test_without_an_arena_recompute_alone_brings_everybody_to_an_end(way: int) -> None:
    house = House(pages=16, arena=0, seats=4, inflight=2, way=way, recompute=True)
    house.run([Job(0, 8, 48)] * 4)
    rig = house.rig
    assert all(rig.tokens(f"r{number}") == rig.solo(f"r{number}") for number in range(4))
    assert sum(rig.said[f"r{number}"][-1].recomputes for number in range(4)) >= 2
    assert rig.core.counters.prompt_tokens == 32 and rig.core.counters.copies == 0
