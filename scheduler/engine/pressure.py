"""When to ask admission for room, and when waiting for its answer is over.

Asked once, and again when more is missing or after a while: a lost answer can't hang the group. When no resident can
run and nothing is in flight, only an answer or a clock can help; `StallWatch` says when neither will.
"""

from scheduler.engine.outbox import Outbox
from scheduler.engine.parking import Parking
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence, State
from scheduler.messages import Pressure

REASK_STEPS = 32
REASK_S = 1.0
STALL_PATIENCE_S = 10.0


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
        staying = sum(seq.state is not State.PARKING for seq in self._roster.residents.values())
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


class StallWatch:
    """`since`: when every runnable sequence began to wait for a page with nothing in flight; None while steps go on."""

    def __init__(self, roster: Roster, parking: Parking) -> None:
        self._roster = roster
        self._parking = parking
        self.since: float | None = None

    def clear(self) -> None:
        """A step computes something."""
        self.since = None
        if self._parking.refused:
            self._parking.refused.clear()

    def victim(self, now: float) -> tuple[Sequence, str] | None:
        """The newest page holder and the text for its client if no park can be hoped for; None: wait on."""
        if self.since is None:
            self.since = now
        arena = self._roster.arena
        if not any(self._can_park(seq) for seq in self._roster.running):
            why = f"and the host RAM budget of {arena.num_total} pages is full ({arena.num_free} are free)"
            if any(seq.table.num_pages <= arena.num_free for seq in self._roster.running if seq.table.num_pages):
                why = "and copies to host RAM fail"
        elif now >= self.since + STALL_PATIENCE_S:
            why = f"and no request was parked within {STALL_PATIENCE_S:g} s"
        else:
            return None
        seq = self._roster.newest(lambda one: one.table.num_pages > 0)
        return None if seq is None else (seq, pool_is_full(self._roster, seq, why))

    def _can_park(self, seq: Sequence) -> bool:
        """Whether parking `seq` is possible and would free something."""
        return 0 < seq.table.num_pages <= self._roster.arena.num_free and seq.seq_id not in self._parking.refused


def pool_is_full(roster: Roster, seq: Sequence, why: str) -> str:
    """What a client reads whose request found no page."""
    config = roster.config
    return (
        f"the KV pool of {config.pool_tokens} tokens is full: this request holds {seq.table.num_pages} of its "
        f"{config.num_pages} pages and needs another, {why}"
    )
