"""The engine of one group as a state machine: commands and answers in; plans, tokens and events out.

The clock is an argument. A turn: `post` commands as they come; `plan_step` until it says None; `apply` the ranks'
answers in the order of the plans, and `apply_copy` the ends of copies as they come; `take_tokens` and `take_events`
after each of them. No call waits, and none can fail because of what a client sent.
"""

import logging

from kv import KVError
from scheduler.engine.commands import CommandLine
from scheduler.engine.config import EngineConfig
from scheduler.engine.copies import Copies
from scheduler.engine.counters import EngineCounters
from scheduler.engine.draft import Draft
from scheduler.engine.exits import Exits
from scheduler.engine.flights import Flights
from scheduler.engine.outbox import Outbox
from scheduler.engine.parking import Parking
from scheduler.engine.planner import StepPlanner
from scheduler.engine.pressure import REASK_S, PressureGauge
from scheduler.engine.reception import Reception
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import State
from scheduler.engine.stall import STALL_PATIENCE_S, StallWatch
from scheduler.messages import (
    Admit,
    Command,
    EngineEvent,
    Fail,
    FinishReason,
    GroupLoad,
    Park,
    ParkReason,
    Restore,
    TokenEvent,
)
from scheduler.plan import CopyResult, StepPlan, StepResult

logger = logging.getLogger(__name__)


class EngineCore:
    """Plans steps for one group. Not thread-safe: one loop owns it."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.counters = EngineCounters()
        self._commands = CommandLine()
        self._roster = Roster(config)
        self._room = Room(self._roster)
        self._outbox = Outbox(self._roster, self._room, self._commands)
        self._copies = Copies(self._roster)
        self._reception = Reception(self._roster, self._room, self._outbox)
        self._parking = Parking(self._roster, self._room, self._outbox, self._copies)
        self._exits = Exits(self._roster, self._parking, self._outbox)
        self._planner = StepPlanner(self._roster, self._room, self.counters)
        self._gauge = PressureGauge(self._roster, self._room, self._outbox)
        self._stall = StallWatch(self._roster, self._parking)
        self._flights = Flights(self._copies, self._parking, self._exits, self._outbox, self.counters)
        self._failure: str | None = None

    # ---- what there is to know

    @property
    def num_inflight(self) -> int:
        return len(self._flights)

    @property
    def is_idle(self) -> bool:
        """Nothing lives, nothing is in flight, and the ranks know of nothing that doesn't live."""
        return not (self._roster.by_request or len(self._flights) or self._exits.has_news or self._roster.has_unwanted)

    @property
    def wake_at(self) -> float | None:
        """When to call `plan_step` again though nothing has happened; None: only a command or an answer matters."""
        if self._stall.since is None or len(self._flights):
            return None
        patience = self._stall.since + STALL_PATIENCE_S
        return patience if self._gauge.asked_at is None else min(patience, self._gauge.asked_at + REASK_S)

    def account(self) -> GroupLoad:
        return self._outbox.account()

    def take_tokens(self) -> dict[str, list[TokenEvent]]:
        """What gateways must hear, by gateway id, in order."""
        return self._outbox.take_tokens()

    def take_events(self) -> list[EngineEvent]:
        """What admission must hear, in order."""
        return self._outbox.take_events()

    # ---- commands

    def post(self, command: Command) -> None:
        """Take a command; it is carried out by the next `plan_step`. Early and repeated numbers are put in order."""
        self._commands.post(command)

    def carry_out(self, now: float) -> None:
        """Obey every command that is due. An unknown or ended request makes a command an empty one."""
        while (command := self._commands.take()) is not None:
            if isinstance(command, Admit):
                self._reception.admit(command.submission, self._failure)
                continue
            family = self._roster.by_request.get(command.request_id)
            if family is None or family.state is State.ENDED:
                continue
            if isinstance(command, Park):
                self._parking.order_park(family, command.reason, now)
            elif isinstance(command, Restore):
                self._parking.order_restore(family, now)
            elif isinstance(command, Fail):
                self._exits.end(family, FinishReason.ERROR, now, error=command.error)
            else:
                self._exits.end(family, FinishReason.CANCELLED, now)

    # ---- steps

    def plan_step(self, now: float) -> StepPlan | None:
        """The next plan to send, or None when there is nothing to do or enough is in flight."""
        self.carry_out(now)
        if self._failure is not None or len(self._flights) >= self.config.max_inflight:
            return None
        draft = self._draft(now)
        self._gauge.read(now, self._flights.next_step)
        self._outbox.note_progress(now)
        return None if draft is None else self._flights.send(draft)

    def plan_probe(self) -> StepPlan:
        """An empty plan that makes the ranks take one turn. Only with room for another plan in flight."""
        assert self._failure is None and len(self._flights) < self.config.max_inflight
        return self._flights.send(Draft(step=self._flights.next_step))

    def _draft(self, now: float) -> Draft | None:
        while True:
            draft = Draft(
                step=self._flights.next_step,
                finished=self._exits.take_finished(),
                freed_arena_ids=self._roster.take_unwanted(),
            )
            self._parking.fill(draft, now)
            self._planner.fill(draft)
            if draft.chunks or not draft.stalled:
                self._stall.clear()
            makes_room = bool(draft.stalled) and self._make_room(draft, now)
            if not draft.is_empty:
                return draft
            if not makes_room:
                return None

    def _make_room(self, draft: Draft, now: float) -> bool:
        """Somebody found no page: if nothing else can help, end or park one. True when that was done."""
        verdict = self._stall.verdict(draft, now, moves=len(self._flights) > 0 or not draft.is_empty)
        if verdict is None:
            return False
        if verdict.error is None:
            logger.warning("nobody can run and no park was ordered: %s makes room", verdict.family.request_id)
            self._parking.drop(verdict.family, ParkReason.PRESSURE, now)
        else:
            self._exits.end(verdict.family, FinishReason.ERROR, now, error=verdict.error)
        return True

    # ---- answers

    def apply(self, result: StepResult, now: float) -> None:
        """Take the ranks' answer to the oldest plan in flight. Raises `PlanMismatch`."""
        self._flights.land(result, now)
        self._outbox.note_progress(now)

    def apply_copy(self, result: CopyResult, now: float) -> None:
        """Take the end of a copy on all ranks. Raises `PlanMismatch`. After `fail_all` nobody wants one any more."""
        if self._failure is None:
            self._flights.land_copy(result, now)
            self._outbox.note_progress(now)

    # ---- the worst, and the proof

    def fail_all(self, error: str, now: float) -> None:
        """The ranks are lost: end everything with `error`, now and for every later admission. Idempotent."""
        if self._failure is not None:
            return
        self._failure = error
        self._flights.abandon()
        for family in list(self._roster.by_request.values()):
            try:
                if family.state is State.ENDED:
                    self._exits.settle(family)
                else:
                    self._exits.end(family, FinishReason.ERROR, now, error=error)
            except KVError:  # a fault may have left its books open; the others must hear of their end all the same
                logger.exception("what %s held could not be given back", family.request_id)
        self._exits.take_finished()  # there is nobody left to tell
        self._roster.take_unwanted()
        self._stall.clear()
        self.carry_out(now)

    def check_integrity(self) -> None:
        """Every page and arena slot has one owner or is free, and flights are counted right. Raises `KVCorruption`."""
        self._roster.check_integrity()
        counted = self._flights.count()
        copying = [copy.family for copy in self._copies.under_way.values()]
        for family in self._roster.by_request.values():
            assert family.is_copying == (family in copying)
            for seq in (*family.living, *family.leaving):
                assert counted.pop(seq.seq_id, 0) == seq.num_flights
        assert not counted and len(copying) == len({id(family) for family in copying})
        if self.is_idle:
            assert self._roster.pool.num_owned == 0 and self._roster.arena.num_owned == 0
