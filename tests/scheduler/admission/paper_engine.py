"""An engine on paper: pages are integers, steps are calls, nothing is copied. The naive opposite of the admission core.

It obeys commands in order, takes what they need or defers them, grows every runnable choice by one token a step,
reports pressure within a lookahead, and asserts at every turn that it never holds more than it has.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

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
from tests.scheduler.admission.paper_life import Life, new_life

CHUNK = 64


@dataclass
class PaperEngine:
    """`copy_fails(request_id)` decides whether a copy fails; copies land a step after their order."""

    capacity: GroupCapacity
    arena_pages: int
    copy_fails: Callable[[str], bool] = lambda _: False
    lookahead: int = 8
    inbox: deque[Command] = field(default_factory=deque)
    lives: dict[str, Life] = field(default_factory=dict)
    last_command: int = 0
    generated: int = 0
    deferrals: int = 0
    starved_steps: int = 0
    parks: dict[str, int] = field(default_factory=dict)
    recomputes: int = 0
    own_parks: int = 0
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

    @property
    def seats_free(self) -> int:
        return self.capacity.seats - sum(len(life.choices) for life in self.residents)

    def _pages(self, life: Life, ahead: int = 0) -> int:
        return life.needs(self.capacity.page_size, ahead)

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
                    num_tokens=life.num_tokens,
                    seats=len(life.choices),
                    num_pages=life.pages,
                    pages_to_hold=self._pages(life),
                )
                for life in self.residents
            ),
        )

    @property
    def living(self) -> list[str]:
        return list(self.lives)

    @property
    def parked(self) -> dict[str, tuple[int, int, int]]:
        lives = {request_id: life for request_id, life in self.lives.items() if life.place == "parked"}
        return {key: (life.num_tokens, len(life.choices), self._pages(life)) for key, life in lives.items()}

    @property
    def recomputes_now(self) -> bool:
        return any(life.behind > 0 and life.place == "running" for life in self.lives.values())

    def check_empty(self) -> None:
        assert not self.lives
        assert (self.pages_free, self.arena_free) == (self.capacity.num_pages, self.arena_pages)

    def check(self) -> None:
        assert self.pages_free >= 0, "more pages are held than there are"
        assert self.arena_free >= 0, "more arena pages are held than there are"
        assert self.seats_free >= 0, "more seats are taken than there are"

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
        if life.mode is ParkMode.COPY and self.copy_fails(request_id):
            life.arena = 0
            if not self.capacity.recompute:
                life.place = "running"
                self._report(lambda load: ParkFailed(load=load, request_id=request_id, reason="the copy failed"))
                return
            life.mode = ParkMode.RECOMPUTE
        life.pages, life.place = 0, "parked"
        life.parks = self.parks[request_id] = life.parks + 1
        self._say_parked(life)

    def _say_parked(self, life: Life) -> None:
        self._report(life.has_parked(self._pages(life)))

    def _land_restore(self, request_id: str, life: Life) -> None:
        if life.mode is ParkMode.COPY and self.copy_fails(request_id):
            if not self.capacity.recompute:
                life.place, life.pages = "parked", 0
                self._report(lambda load: Deferred(load=load, request_id=request_id))
                if life.wants_out is not None:
                    life.reason, life.wants_out = life.wants_out, None
                    self._say_parked(life)
                return
            life.mode, life.pages = ParkMode.RECOMPUTE, 0
        mode = life.mode
        if mode is ParkMode.RECOMPUTE:
            life.behind = sum(life.choices.values())
            self.recomputes += 1
        life.arena, life.place = 0, "running"
        self._report(lambda load: Restored(load=load, request_id=request_id, mode=mode))
        if life.wants_out is not None:
            reason, life.wants_out = life.wants_out, None
            self._park(request_id, life, reason)

    def _obey(self, command: Command) -> None:
        if isinstance(command, Admit):
            self._admit(command.submission)
        elif (life := self.lives.get(command.request_id)) is None:
            assert not isinstance(command, Restore), "a restore of what does not exist"
        elif isinstance(command, Park):
            self._park(command.request_id, life, command.reason)
        elif isinstance(command, Restore):
            self._restore(command.request_id, life)
        elif isinstance(command, Cancel):
            self._end(command.request_id, FinishReason.CANCELLED)
        else:
            assert isinstance(command, Fail)
            self._end(command.request_id, FinishReason.ERROR)

    def _admit(self, sub: Submission) -> None:
        assert sub.request_id not in self.lives, "admitted twice"
        life = new_life(sub, self.capacity)
        if sub.n > self.seats_free or self._pages(life) > self._unpromised():
            self._defer(sub.request_id)
            return
        self.lives[sub.request_id] = life

    def _unpromised(self) -> int:
        running = [life for life in self.residents if life.place == "running"]
        return self.pages_free - sum(max(0, self._pages(life) - life.pages) for life in running)

    def _defer(self, request_id: str) -> None:
        self.deferrals += 1
        self._report(lambda load: Deferred(load=load, request_id=request_id))

    def _park(self, request_id: str, life: Life, reason: ParkReason) -> None:
        if life.place == "restoring":
            life.wants_out = reason
        elif life.place == "parked":
            self._say_parked(life)
        elif life.place == "running":
            if life.pages <= self.arena_free:
                life.mode, life.arena = ParkMode.COPY, life.pages
            elif self.capacity.recompute:
                life.mode = ParkMode.RECOMPUTE
            else:
                self._report(lambda load: ParkFailed(load=load, request_id=request_id, reason="the arena is full"))
                return
            life.place, life.reason = "parking", reason
        else:
            raise AssertionError("a park of what is being parked")

    def _restore(self, request_id: str, life: Life) -> None:
        assert life.place == "parked", f"restore of one that is {life.place}"
        if len(life.choices) > self.seats_free or max(life.arena, self._pages(life)) > self._unpromised():
            self._defer(request_id)
            return
        life.place, life.pages = "restoring", life.arena

    def _end(self, request_id: str, reason: FinishReason) -> None:
        num_tokens = self.lives.pop(request_id).num_tokens
        self.ended[request_id] = reason
        self._report(lambda load: Finished(load=load, request_id=request_id, num_tokens=num_tokens, reason=reason))

    def _grow(self) -> None:
        stalled, grown = [], 0
        for request_id, life in list(self.lives.items()):
            if life.place != "running":
                continue
            need = self._pages(life) - life.pages
            if need > self.pages_free:
                stalled.append(request_id)
                continue
            life.pages += need
            if life.behind > 0:
                life.behind -= CHUNK
                continue
            grown += len(life.choices)
            self._speak(request_id, life)
        self.generated += grown
        self._help_if_stuck(stalled, grown)

    def _speak(self, request_id: str, life: Life) -> None:
        """A token of each living choice; those at their end give back what only they held."""
        for choice in list(life.choices):
            life.choices[choice] += 1
            if life.choices[choice] >= life.limits[choice]:
                life.ended_tokens += life.choices.pop(choice) - len(life.submission.prompt_tokens)
        if life.choices:
            life.pages = min(life.pages, self._pages(life))
        else:
            self._end(request_id, FinishReason.LENGTH)

    def _help_if_stuck(self, stalled: list[str], grown: int) -> None:
        """Nobody could move, no copy is under way and no park can help: the newest ends, as in the real engine, or is
        parked by dropping its pages where that is allowed."""
        moving = any(life.place in ("parking", "restoring") or life.behind > 0 for life in self.residents)
        if not stalled or grown or moving:
            self.starved_steps = 0
            return
        self.starved_steps += 1
        if self.capacity.recompute and len(self.residents) > 1:
            if self.starved_steps > 100:
                self.own_parks += 1
                life = self.lives[next(each for each in reversed(self.lives) if self.lives[each].pages)]
                life.place, life.mode, life.reason = "parking", ParkMode.RECOMPUTE, ParkReason.PRESSURE
            return
        if self.starved_steps > 100 or not any(0 < life.pages <= self.arena_free for life in self.residents):
            self._end(stalled[-1], FinishReason.ERROR)

    def _look_ahead(self) -> None:
        staying = [life for life in self.residents if life.place != "parking"]
        claims = sum(self._pages(life, self.lookahead) + len(life.choices) for life in staying)
        if len(staying) > 1 and claims > self.capacity.num_pages:
            shortfall = claims - self.capacity.num_pages
            self._report(lambda load: Pressure(load=load, shortfall=shortfall))
