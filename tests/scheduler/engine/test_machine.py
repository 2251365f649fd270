"""Random lives of random requests against ranks that check everything: nothing lost, nothing doubled, nothing left."""

import re

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scheduler.messages import Admit, Deferred, Finished, FinishReason, Notice, Parked, Pressure, Restored
from scheduler.plan import CopyOutcome, CopyResult
from tests.fakes import FakeRanks
from tests.scheduler.engine.rig import Rig

STOP = 3
turns = st.integers(0, 3)
which = st.integers(0, 3)


class EngineMachine(RuleBasedStateMachine):
    """Commands of any kind, for anybody, between plans and answers in any order that the ranks allow."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = CopyOutcome.DONE
        self.rig = Rig()
        self.answered = 0
        self.failed = False
        self.waiting: list[str] = []
        self.parked: list[str] = []

    @initialize(
        inflight=st.sampled_from([2, 1]),
        pages=st.sampled_from([16, 9, 5]),
        arena=st.sampled_from([200, 6, 20, 0]),
        park=st.sampled_from([True, True, True, True, False]),
        recompute=st.booleans(),
        step_tokens=st.sampled_from([4, 9, 64]),
    )
    def start(self, *, inflight: int, pages: int, arena: int, park: bool, recompute: bool, step_tokens: int) -> None:
        self.rig = Rig(
            pages=pages,
            arena=arena,
            park=park,
            recompute=recompute,
            inflight=inflight,
            step_tokens=step_tokens,
            running=4,
            vocab=40,
            model_len=60,
            outcome_of=lambda order: self.outcome,
        )

    @rule(
        prompt=st.integers(1, 18),
        max_tokens=st.integers(1, 30),
        n=st.sampled_from([1, 1, 2, 3]),
        stops=st.booleans(),
        turns=turns,
    )
    def admit(self, *, prompt: int, max_tokens: int, n: int, stops: bool, turns: int) -> None:
        name = f"r{len(self.rig.submissions)}"
        self.rig.admit(name, prompt, max_tokens, n=n, seed=prompt, stop_ids=(STOP,) if stops else ())
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

    @rule(outcome=st.sampled_from([CopyOutcome.DONE, CopyOutcome.FAILED, CopyOutcome.CORRUPT]))
    def spoil_or_mend_copies(self, outcome: CopyOutcome) -> None:
        self.outcome = outcome

    @rule()
    def hold_or_release_copies(self) -> None:
        self.rig.hold_copies = not self.rig.hold_copies

    @precondition(lambda self: self.rig.ranks.can_land)
    @rule(which=which)
    def land(self, which: int) -> None:
        self.rig.land(self.rig.ranks.can_land[which % len(self.rig.ranks.can_land)])
        self.listen()

    @precondition(lambda self: len(self.rig.submissions) > 5)
    @rule()
    def lose_the_ranks(self) -> None:
        """Answers and ends of copies that are still on their way come to nobody."""
        self.failed = True
        self.rig.core.fail_all("the ranks are lost", self.rig.now)
        for copy_id in list(self.rig.ranks.copies):
            self.rig.core.apply_copy(CopyResult(copy_id=copy_id, outcome=CopyOutcome.DONE), self.rig.now)
        ranks = self.rig.ranks
        self.rig.ranks = FakeRanks(num_pages=0, arena_pages=0, page_size=4, vocab=ranks.vocab)
        self.rig.listen()
        self.listen()

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
        for name in self.parked:
            self.check_parked(self.rig.of(Parked, name)[-1])

    def check_parked(self, parked: Parked) -> None:
        """What was told when it left is so until it is back."""
        name, rig = parked.request_id, self.rig
        sub = rig.submissions[name]
        num_prompt, said = len(sub.prompt_tokens), [len(rig.tokens(name, choice)) for choice in range(sub.n)]
        shared = (num_prompt - 1) // 4 if sub.n > 1 else 0
        own = [-(-(num_prompt + said[at]) // 4) - shared for at in range(sub.n) if rig.finish(name, at) is None]
        if own:  # else it is being cancelled
            told = (parked.num_tokens, parked.seats, parked.pages_to_hold)
            assert told == (num_prompt + sum(said), len(own), shared + sum(own))

    def teardown(self) -> None:
        """From any state, the plainest admission brings everybody to an end."""
        self.outcome = CopyOutcome.DONE
        rig = self.rig
        rig.hold_copies = False
        for _ in range(4000):
            before = len(rig.events)
            rig.turn()
            self.listen()
            self.serve(rig, before)
            if rig.core.is_idle and not self.waiting:
                break
        assert rig.core.is_idle and not self.waiting and not self.parked, "everybody comes to an end"
        assert rig.free == (rig.core.config.num_pages, rig.core.config.arena_pages)
        assert rig.ranks.mirrors == {} and rig.ranks.used_slots == set() and rig.core.wake_at is None
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
        (finished,) = rig.of(Finished, name)
        sub = rig.submissions[name]
        for choice in range(sub.n):
            self.check_choice(name, choice)
        assert finished.num_tokens == len(sub.prompt_tokens) + sum(len(rig.tokens(name, at)) for at in range(sub.n))
        assert finished.reason in {rig.finish(name, choice) for choice in range(sub.n)}
        notices = rig.notices(name)
        assert re.fullmatch("(parked resumed (recomputed )?)*(parked )?", "".join(f"{one} " for one in notices))
        assert rig.said[name][-1].parks == notices.count(Notice.PARKED)
        assert rig.said[name][-1].recomputes == notices.count(Notice.RECOMPUTED)
        assert rig.core.config.recompute or Notice.RECOMPUTED not in notices

    def check_choice(self, name: str, choice: int) -> None:
        rig = self.rig
        sub, pages = rig.submissions[name], rig.core.config.num_pages
        num_prompt = len(sub.prompt_tokens)
        shared = (num_prompt - 1) // 4 if sub.n > 1 else 0
        pool_room = (shared + (pages - shared) // sub.n) * 4 + 1 - num_prompt
        num_tokens = min(sub.stop.max_tokens, 60 - num_prompt, pool_room)
        solo = rig.solo(name, num_tokens, choice) if num_tokens > 0 else []
        finish, tokens = rig.finish(name, choice), rig.tokens(name, choice)
        if finish in (FinishReason.LENGTH, FinishReason.STOP):
            assert tokens == solo
        else:
            assert tokens == solo[: len(tokens)]
        if finish is FinishReason.ERROR:
            error = rig.said[name][-1].error
            assert error is not None
            assert re.search("is full|the KV pool ha", error) or (self.failed and error == "the ranks are lost")


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
