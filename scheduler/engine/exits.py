"""How sequences end: the client is told at once, the books are closed when no plan in flight names the sequence."""

from scheduler.engine.outbox import Outbox
from scheduler.engine.parking import Parking
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence, State
from scheduler.messages import Finished, FinishReason


class Exits:
    """Also keeps the ids that the ranks must still be told to forget."""

    def __init__(self, roster: Roster, parking: Parking, outbox: Outbox) -> None:
        self._roster = roster
        self._parking = parking
        self._outbox = outbox
        self._to_forget: list[int] = []

    @property
    def has_news(self) -> bool:
        return bool(self._to_forget)

    def end(
        self,
        seq: Sequence,
        finish: FinishReason,
        now: float,
        *,
        tokens: tuple[int, ...] = (),
        error: str | None = None,
    ) -> None:
        """End a live sequence in whatever state it is. Its last tokens and its finish go out in one event."""
        seq.finish = finish
        seq.error = error
        if seq.parked_at is not None:
            seq.parked_s += now - seq.parked_at
            seq.parked_at = None
        self._parking.forget(seq)
        self._roster.place(seq, State.ENDED)
        if seq.is_on_ranks:
            self._to_forget.append(seq.seq_id)
        self._outbox.say(seq, tokens, finish=finish)
        self.settle(seq)

    def settle(self, seq: Sequence) -> None:
        """Give back what an ended sequence holds, once no plan in flight names it."""
        if seq.num_flights == 0:
            self._roster.release(seq)
            self._outbox.report(Finished, request_id=seq.request_id, reason=seq.finish, error=seq.error)

    def take_finished(self) -> tuple[int, ...]:
        """Ids for the next plan's `finished`."""
        if not self._to_forget:
            return ()
        ids, self._to_forget = tuple(self._to_forget), []
        return ids
