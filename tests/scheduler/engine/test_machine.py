"""Random lives of random requests against ranks that check everything: nothing lost, nothing doubled, nothing left."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scheduler.messages import Admit, Deferred, Finished, FinishReason, Notice, Parked, Pressure, Restored
from scheduler.plan import CopyOutcome
from tests.scheduler.engine.rig import Rig

STOP = 3
turns = st.integers(0, 3)
which = st.integers(0, 3)


class EngineMachine(RuleBasedStateMachine):
    """Commands of any kind, for anybody, between plans and answers in any order that the ranks allow."""

    def __init__(self) -> None:
        super().__init__()
        self.copies_fail = False
        self.rig = Rig()
        self.answered = 0
        self.waiting: list[str] = []
        self.parked: list[str] = []

    @initialize(
        inflight=st.sampled_from([2, 1]),
        pages=st.sampled_from([16, 9, 5]),
        arena=st.sampled_from([200, 6, 20, 0]),
        park=st.sampled_from([True, True, True, True, False]),
        step_tokens=st.sampled_from([4, 9, 64]),
    )
    def start(self, inflight: int, pages: int, arena: int, park: bool, step_tokens: int) -> None:
        self.rig = Rig(
            pages=pages,
            arena=arena,
            park=park,
            inflight=inflight,
            step_tokens=step_tokens,
            running=4,
            vocab=40,
            model_len=60,
            outcome_of=lambda order: CopyOutcome.FAILED if self.copies_fail else CopyOutcome.DONE,
        )

    @rule(prompt=st.integers(1, 18), max_tokens=st.integers(1, 30), stops=st.booleans(), turns=turns)
    def admit(self, prompt: int, max_tokens: int, stops: bool, turns: int) -> None:
        name = f"r{len(self.rig.submissions)}"
        self.rig.admit(name, prompt, max_tokens, seed=prompt, stop_ids=(STOP,) if stops else ())
        self.waiting.append(name)
        self.turn(turns)

    @rule(which=which, turns=turns)
    def park(self, which: int, turns: int) -> None:
        residents = self.rig.core.account().residents
        if residents:
            self.rig.park(residents[which % len(residents)].request_id)
        self.turn(turns)

    @rule(which=which, turns=turns)
    def restore(self, which: int, turns: int) -> None:
        if self.parked:
            self.rig.restore(self.parked[which % len(self.parked)])
        self.turn(turns)

    @rule(which=which, turns=turns)
    def cancel(self, which: int, turns: int) -> None:
        live = [*self.parked, *(one.request_id for one in self.rig.core.account().residents)]
        if live:
            self.rig.cancel(live[which % len(live)])
        self.turn(turns)

    @rule(which=which)
    def order_both_ways(self, which: int) -> None:
        live = [*self.parked, *(one.request_id for one in self.rig.core.account().residents)]
        if live:
            self.rig.park(live[which % len(live)])
            self.rig.restore(live[which % len(live)])
        self.plan()

    @rule()
    def plan(self) -> None:
        self.rig.plan()
        self.listen()

    @precondition(lambda self: self.rig.ranks.num_unanswered)
    @rule()
    def answer(self) -> None:
        self.rig.answer()
        self.listen()

    @rule(turns=st.integers(1, 9))
    def turn(self, turns: int) -> None:
        for _ in range(turns):
            self.rig.turn()
        self.listen()

    @rule()
    def spoil_or_mend_copies(self) -> None:
        self.copies_fail = not self.copies_fail

    def listen(self) -> None:
        """Keep the simplest of books: who was deferred, who lies parked."""
        for event in self.rig.events[self.answered :]:
            if isinstance(event, Parked) and event.request_id not in self.parked:
                self.parked.append(event.request_id)
            elif isinstance(event, Restored | Finished) and event.request_id in self.parked:
                self.parked.remove(event.request_id)
            if isinstance(event, Finished) and event.request_id in self.waiting:
                self.waiting.remove(event.request_id)
        self.answered = len(self.rig.events)

    def teardown(self) -> None:
        """From any state, the plainest admission brings everybody to an end."""
        self.copies_fail = False
        rig = self.rig
        for _ in range(4000):
            before = len(rig.events)
            rig.turn()
            self.listen()
            self.serve(rig, before)
            if rig.core.is_idle and not self.waiting:
                break
        assert rig.core.is_idle and not self.waiting and not self.parked, "everybody comes to an end"
        assert rig.free == (rig.core.config.num_pages, rig.core.config.arena_pages)
        assert rig.ranks.mirrors == {} and rig.core.wake_at is None
        for name in rig.submissions:
            self.check_stream(name)

    def serve(self, rig: Rig, before: int) -> None:
        resident = {one.request_id for one in rig.core.account().residents}
        for event in rig.events[before:]:
            if isinstance(event, Pressure) and len(event.load.residents) > 1:
                rig.park(event.load.residents[-1].request_id)
        if rig.ranks.next_step % 7 == 0 or not resident:
            back = [name for name in self.parked if name not in resident][:1]
            for name in back:
                rig.restore(name)
            deferred = {event.request_id for event in rig.of(Deferred)}
            for name in [name for name in self.waiting if name in deferred and name not in (*self.parked, *resident)][
                :1
            ]:
                rig.post(Admit, submission=rig.submissions[name])

    def check_stream(self, name: str) -> None:
        rig = self.rig
        assert len(rig.of(Finished, name)) == 1
        finish, tokens = rig.finish(name), rig.tokens(name)
        assert finish is rig.of(Finished, name)[0].reason
        sub = rig.submissions[name]
        room = min(sub.stop.max_tokens, 60 - len(sub.prompt_tokens))
        pool_room = rig.core.config.pool_tokens + 1 - len(sub.prompt_tokens)
        solo = rig.solo(name, min(room, pool_room)) if pool_room > 0 else []
        if finish in (FinishReason.LENGTH, FinishReason.STOP):
            assert tokens == solo
        else:
            assert tokens == solo[: len(tokens)]
        if finish is FinishReason.ERROR:
            error = rig.said[name][-1].error
            assert error is not None and ("is full" in error or "the KV pool holds" in error)
        notices = rig.notices(name)
        assert notices == (["parked", "resumed"] * len(notices))[: len(notices)]
        assert rig.said[name][-1].parks == notices.count(Notice.PARKED)


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
