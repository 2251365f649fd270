"""When to ask admission for room: once, and again when more is missing or after a while, so that a lost answer can't
hang the group.
"""

from scheduler.engine.outbox import Outbox
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import State
from scheduler.messages import Pressure

REASK_STEPS = 32
REASK_S = 1.0


class PressureGauge:
    """Reads the room after each plan. `asked_at` is when it asked last, None while nothing is missing."""

    def __init__(self, roster: Roster, room: Room, outbox: Outbox) -> None:
        self._roster = roster
        self._room = room
        self._outbox = outbox
        self._asked_step = 0
        self._asked_shortfall = 0
        self.asked_at: float | None = None

    def read(self, now: float, step: int) -> None:
        """Ask for room if the residents claim more than the pool has."""
        shortfall = self._room.shortfall()
        if shortfall <= 0:
            self.asked_at = None
            return
        staying = sum(family.state is not State.PARKING for family in self._roster.residents.values())
        if staying < 2 or not self._roster.config.park:
            self.asked_at = None  # a last resident has the whole pool; without parking nobody could answer
            return
        if (
            self.asked_at is None
            or shortfall > self._asked_shortfall
            or step - self._asked_step >= REASK_STEPS
            or now >= self.asked_at + REASK_S
        ):
            self.asked_at, self._asked_step, self._asked_shortfall = now, step, shortfall
            self._outbox.report(Pressure, shortfall=shortfall)
