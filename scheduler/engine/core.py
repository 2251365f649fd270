"""The engine of one group as a state machine: commands and answers in; plans, tokens and events out.

The clock is an argument. A turn: `post` commands as they come; `plan_step` until it says None; `apply` the ranks'
answers in the order of the plans; `take_tokens` and `take_events` after each of them. No call waits, and none can fail
because of what a client sent.
"""

import logging
from collections import deque

from kv import KVError
from scheduler.engine.commands import CommandLine
from scheduler.engine.config import EngineConfig
from scheduler.engine.draft import Draft
from scheduler.engine.errors import PlanMismatch
from scheduler.engine.exits import Exits
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
    Restore,
    TokenEvent,
)
from scheduler.plan import StepPlan, StepResult

logger = logging.getLogger(__name__)


class EngineCore:
    """Plans steps for one group. Not thread-safe: one loop owns it."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._commands = CommandLine()
        self._roster = Roster(config)
        self._outbox = Outbox(self._roster, self._commands)
        self._room = Room(self._roster)
        self._reception = Reception(self._roster, self._room, self._outbox)
        self._parking = Parking(self._roster, self._room, self._outbox)
        self._exits = Exits(self._roster, self._parking, self._outbox)
        self._planner = StepPlanner(self._roster, self._room)
        self._gauge = PressureGauge(self._roster, self._room, self._outbox)
        self._stall = StallWatch(self._roster, self._parking)
        self._flights: deque[Draft] = deque()
        self._next_step = 0
        self._failure: str | None = None

    # ---- what there is to know

    @property
    def num_inflight(self) -> int:
        return len(self._flights)

    @property
    def is_idle(self) -> bool:
        """Nothing lives, nothing is in flight, and the ranks know of nothing that doesn't live."""
        return not (self._roster.by_request or self._flights or self._exits.has_news)

    @property
    def wake_at(self) -> float | None:
        """When to call `plan_step` again though nothing has happened; None: only a command or an answer matters."""
        if self._stall.since is None or self._flights:
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
            seq = self._roster.by_request.get(command.request_id)
            if seq is None or seq.state is State.ENDED:
                continue
            if isinstance(command, Park):
                self._parking.order_park(seq, command.reason)
            elif isinstance(command, Restore):
                self._parking.order_restore(seq)
            elif isinstance(command, Fail):
                self._exits.end(seq, FinishReason.ERROR, now, error=command.error)
            else:
                self._exits.end(seq, FinishReason.CANCELLED, now)

    # ---- steps

    def plan_step(self, now: float) -> StepPlan | None:
        """The next plan to send, or None when there is nothing to do or enough is in flight."""
        self.carry_out(now)
        if self._failure is not None or len(self._flights) >= self.config.max_inflight:
            return None
        draft = self._draft(now)
        self._gauge.read(now, self._next_step)
        self._outbox.note_progress(now)
        return None if draft is None else self._send(draft)

    def plan_probe(self) -> StepPlan:
        """An empty plan that makes the ranks take one turn. Only with room for another plan in flight."""
        assert self._failure is None and len(self._flights) < self.config.max_inflight
        return self._send(Draft())

    def _send(self, draft: Draft) -> StepPlan:
        plan = draft.seal(self._next_step)
        self._next_step += 1
        self._flights.append(draft)
        return plan

    def _draft(self, now: float) -> Draft | None:
        while True:
            draft = Draft(finished=self._exits.take_finished())
            self._parking.fill(draft, now)
            self._planner.fill(draft)
            if draft.chunks:
                self._stall.clear()
            overflowed = bool(draft.stalled) and self._overflow(draft, now)
            if not draft.is_empty:
                return draft
            if not (overflowed or self._parking.has_orders or self._exits.has_news):
                return None

    def _overflow(self, draft: Draft, now: float) -> bool:
        """Somebody found no page: end one if nothing else can help. True when one was ended."""
        verdict = self._stall.verdict(draft, now, moves=bool(self._flights) or not draft.is_empty)
        if verdict is None:
            return False
        seq, error = verdict
        self._exits.end(seq, FinishReason.ERROR, now, error=error)
        return True

    def apply(self, result: StepResult, now: float) -> None:
        """Take the ranks' answer to the oldest plan in flight. Raises `PlanMismatch`."""
        if not self._flights or self._flights[0].step != result.step:
            oldest = self._flights[0].step if self._flights else None
            raise PlanMismatch(f"the ranks answered step {result.step}; the oldest plan in flight is {oldest}")
        flight = self._flights.popleft()
        hopeless = self._parking.land(flight, frozenset(result.failed_copies), now)
        for group in (flight.computing, flight.parking, flight.restoring):
            for seq in group:
                seq.num_flights -= 1
                if seq.state is State.ENDED:
                    self._exits.settle(seq)
        for seq in hopeless:
            error = f"{seq.restore_failures} copies from host RAM failed in a row"
            self._exits.end(seq, FinishReason.ERROR, now, error=error)
        self._hand_out(flight, result, now)
        self._outbox.note_progress(now)

    def _hand_out(self, flight: Draft, result: StepResult, now: float) -> None:
        if len(result.tokens) != len(flight.sampling):
            raise PlanMismatch(f"step {result.step}: {len(result.tokens)} tokens for {len(flight.sampling)} samples")
        for seq, (seq_id, token) in zip(flight.sampling, result.tokens, strict=True):
            if seq.seq_id != seq_id:
                raise PlanMismatch(f"step {result.step}: a token for sequence {seq_id}, due was {seq.seq_id}")
            if seq.state is State.ENDED:
                continue  # it ended one step before this was known to be too much
            seq.num_pending -= 1
            if token in seq.stop_ids:
                self._exits.end(seq, FinishReason.STOP, now)
                continue
            seq.num_tokens += 1
            if seq.num_tokens >= seq.limit:
                self._exits.end(seq, FinishReason.LENGTH, now, tokens=(token,))
            else:
                self._outbox.say(seq, (token,))

    # ---- the worst, and the proof

    def fail_all(self, error: str, now: float) -> None:
        """The ranks are lost: end everything with `error`, now and for every later admission. Idempotent."""
        if self._failure is not None:
            return
        self._failure = error
        while self._flights:
            flight = self._flights.popleft()
            self._parking.end_copies(flight)
            for seq in (*flight.computing, *flight.parking, *flight.restoring):
                seq.num_flights -= 1
        for seq in list(self._roster.by_request.values()):
            try:
                if seq.state is State.ENDED:
                    self._exits.settle(seq)
                else:
                    self._exits.end(seq, FinishReason.ERROR, now, error=error)
            except KVError:  # a fault may have left its books open; the others must hear of their end all the same
                logger.exception("what %s held could not be given back", seq.request_id)
        self._exits.take_finished()  # there is nobody left to tell
        self._stall.clear()
        self.carry_out(now)

    def check_integrity(self) -> None:
        """Every page and arena slot has one owner or is free, and flights are counted right. Raises `KVCorruption`."""
        self._roster.check_integrity()
        counted: dict[int, int] = {}
        for flight in self._flights:
            for seq in (*flight.computing, *flight.parking, *flight.restoring):
                counted[seq.seq_id] = counted.get(seq.seq_id, 0) + 1
        for seq in self._roster.by_request.values():
            assert counted.get(seq.seq_id, 0) == seq.num_flights
        if self.is_idle:
            assert self._roster.pool.num_owned == 0 and self._roster.arena.num_owned == 0
