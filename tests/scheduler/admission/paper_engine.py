"""An engine on paper: pages are integers, steps are calls, nothing is copied. The naive opposite of the admission core.

It obeys commands in order, takes what they need or defers them, grows every runnable request by one token a step,
reports pressure within a lookahead, and asserts at every turn that it never holds more than it has.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kv import pages_for
from scheduler.admission import Addressed, GroupCapacity
from scheduler.messages import (
    Admit,
    Cancel,
    Command,
    Deferred,
    EngineEvent,
    Fail,
    Finished,
    FinishReason,
    GroupLoad,
    Park,
    Parked,
    ParkFailed,
    Pressure,
    Progress,
    ResidentLoad,
    Restore,
    Restored,
    Submission,
)
from scheduler.sampling import SamplingParams, StopRules


def submission(request_id: str, prompt: int = 16, max_tokens: int = 64, priority: int = 0) -> Submission:
    return Submission(
        request_id=request_id,
        gateway_id="gateway",
        prompt_tokens=tuple(range(prompt)),
        sampling=SamplingParams(temperature=0.0),
        stop=StopRules(max_tokens=max_tokens),
        priority=priority,
    )


@dataclass
class Life:
    """One request on paper. `place` is running, parking, parked or restoring."""

    submission: Submission
    tokens: int
    place: str = "running"
    pages: int = 0
    arena: int = 0
    parks: int = 0

    @property
    def limit(self) -> int:
        return len(self.submission.prompt_tokens) + self.submission.stop.max_tokens


@dataclass
class PaperEngine:
    """`copy_fails` decides whether a park or restore fails; copies land at the second step after their order."""

    capacity: GroupCapacity
    arena_pages: int
    lookahead: int = 8
    park_fails: Callable[[str], bool] = lambda _: False
    restore_fails: Callable[[str], bool] = lambda _: False
    inbox: deque[Command] = field(default_factory=deque)
    lives: dict[str, Life] = field(default_factory=dict)
    last_command: int = 0
    generated: int = 0
    deferrals: int = 0
    starved_steps: int = 0
    parks: dict[str, int] = field(default_factory=dict)
    ended: dict[str, FinishReason] = field(default_factory=dict)
    _events: list[Callable[[GroupLoad], EngineEvent]] = field(default_factory=list)

    def receive(self, orders: list[Addressed]) -> None:
        for order in orders:
            if order.group_id == self.capacity.group_id:
                self.inbox.append(order.command)

    # ---- the account

    @property
    def residents(self) -> list[Life]:
        return [life for life in self.lives.values() if life.place != "parked"]

    @property
    def pages_free(self) -> int:
        return self.capacity.num_pages - sum(life.pages for life in self.lives.values())

    @property
    def arena_free(self) -> int:
        return self.arena_pages - sum(life.arena for life in self.lives.values())

    def _pages(self, tokens: int) -> int:
        return pages_for(tokens, self.capacity.page_size)

    def load(self) -> GroupLoad:
        return GroupLoad(
            group_id=self.capacity.group_id,
            last_command=self.last_command,
            pages_total=self.capacity.num_pages,
            pages_free=self.pages_free,
            arena_total=self.arena_pages,
            arena_free=self.arena_free,
            residents=tuple(
                ResidentLoad(
                    request_id=life.submission.request_id,
                    num_tokens=life.tokens,
                    num_pages=life.pages,
                    pages_to_hold=self._pages(life.tokens),
                )
                for life in self.residents
            ),
        )

    def check(self) -> None:
        assert self.pages_free >= 0, "more pages are held than there are"
        assert self.arena_free >= 0, "more arena pages are held than there are"
        assert len(self.residents) <= self.capacity.seats, "more seats are taken than there are"

    # ---- one turn

    def step(self) -> list[EngineEvent]:
        """Land copies, obey commands, grow, look ahead. The events carry the account at the end of the turn."""
        self._land()
        while self.inbox:
            command = self.inbox.popleft()
            assert command.number == self.last_command + 1, "a command number is missing or repeated"
            self.last_command = command.number
            self._obey(command)
        self._grow()
        self._look_ahead()
        self.check()
        events = [event(self.load()) for event in self._events] or [Progress(load=self.load())]
        self._events = []
        return events

    def _report(self, event: Callable[[GroupLoad], EngineEvent]) -> None:
        self._events.append(event)

    def _land(self) -> None:
        for request_id, life in list(self.lives.items()):
            if life.place == "parking":
                self._land_park(request_id, life)
            elif life.place == "restoring":
                self._land_restore(request_id, life)

    def _land_park(self, request_id: str, life: Life) -> None:
        if self.park_fails(request_id):
            life.place, life.arena = "running", 0
            self._report(lambda load: ParkFailed(load=load, request_id=request_id, reason="the copy failed"))
            return
        num_pages, life.pages, life.place = life.pages, 0, "parked"
        life.parks += 1
        self.parks[request_id] = life.parks
        self._report(lambda load: Parked(load=load, request_id=request_id, num_pages=num_pages))

    def _land_restore(self, request_id: str, life: Life) -> None:
        if self.restore_fails(request_id):
            life.place, life.pages = "parked", 0
            self._report(lambda load: Deferred(load=load, request_id=request_id))
            return
        life.arena, life.place = 0, "running"
        self._report(lambda load: Restored(load=load, request_id=request_id))

    def _obey(self, command: Command) -> None:
        if isinstance(command, Admit):
            self._admit(command.submission)
        elif (life := self.lives.get(command.request_id)) is None:
            assert not isinstance(command, Restore), "a restore of what does not exist"
        elif isinstance(command, Park):
            self._park(command.request_id, life)
        elif isinstance(command, Restore):
            self._restore(command.request_id, life)
        elif isinstance(command, Cancel):
            self._end(command.request_id, FinishReason.CANCELLED)
        else:
            assert isinstance(command, Fail)
            self._end(command.request_id, FinishReason.ERROR)

    def _admit(self, sub: Submission) -> None:
        assert sub.request_id not in self.lives, "admitted twice"
        tokens = len(sub.prompt_tokens)
        if len(self.residents) >= self.capacity.seats or self._pages(tokens) > self._unpromised():
            self._defer(sub.request_id)
            return
        self.lives[sub.request_id] = Life(submission=sub, tokens=tokens)

    def _unpromised(self) -> int:
        return self.pages_free - sum(
            max(0, self._pages(life.tokens) - life.pages) for life in self.residents if life.place == "running"
        )

    def _defer(self, request_id: str) -> None:
        self.deferrals += 1
        self._report(lambda load: Deferred(load=load, request_id=request_id))

    def _park(self, request_id: str, life: Life) -> None:
        assert life.place == "running", f"park of one that is {life.place}"
        if life.pages > self.arena_free:
            self._report(lambda load: ParkFailed(load=load, request_id=request_id, reason="the arena is full"))
            return
        life.place, life.arena = "parking", life.pages

    def _restore(self, request_id: str, life: Life) -> None:
        assert life.place == "parked", f"restore of one that is {life.place}"
        if len(self.residents) >= self.capacity.seats or life.arena > self._unpromised():
            self._defer(request_id)
            return
        life.place, life.pages = "restoring", life.arena

    def _end(self, request_id: str, reason: FinishReason) -> None:
        del self.lives[request_id]
        self.ended[request_id] = reason
        self._report(lambda load: Finished(load=load, request_id=request_id, reason=reason))

    def _grow(self) -> None:
        stalled, grown = [], 0
        for request_id, life in list(self.lives.items()):
            if life.place != "running":
                continue
            need = self._pages(life.tokens) - life.pages
            if need > self.pages_free:
                life.pages += self.pages_free
                stalled.append(request_id)
                continue
            life.pages += max(0, need)
            life.tokens += 1
            grown += 1
            if life.tokens >= min(life.limit, self.capacity.max_model_len, self.capacity.pool_tokens + 1):
                self._end(request_id, FinishReason.LENGTH)
        self.generated += grown
        self._end_one_if_stuck(stalled, grown)

    def _end_one_if_stuck(self, stalled: list[str], grown: int) -> None:
        """Nobody could move, no copy is under way and no park can help: the newest ends, as in the real engine."""
        if not stalled or grown or any(life.place in ("parking", "restoring") for life in self.lives.values()):
            self.starved_steps = 0
            return
        self.starved_steps += 1
        hopeless = not any(0 < life.pages <= self.arena_free for life in self.residents)
        if hopeless or self.starved_steps > 100:
            self._end(stalled[-1], FinishReason.ERROR)

    def _look_ahead(self) -> None:
        staying = [life for life in self.residents if life.place != "parking"]
        claims = sum(self._pages(min(life.tokens + self.lookahead, life.limit)) + 1 for life in staying)
        if len(staying) > 1 and claims > self.capacity.num_pages:
            shortfall = claims - self.capacity.num_pages
            self._report(lambda load: Pressure(load=load, shortfall=shortfall))
