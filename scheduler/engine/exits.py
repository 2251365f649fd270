"""How requests end, choice by choice or at once: the client is told now, the books are closed when no plan in flight
and no copy under way names what they own.
"""

from scheduler.engine.outbox import Outbox
from scheduler.engine.parking import Parking
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family, Sequence, State
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

    def end_choice(self, seq: Sequence, finish: FinishReason, tokens: tuple[int, ...] = ()) -> None:
        """One choice has come to its end; with the last of them the request has. Tokens and finish are one event."""
        family = seq.family
        self._leave(seq, finish, tokens)
        if family.living:
            self.settle(family)
        else:
            self._close(family, finish)

    def end(self, family: Family, finish: FinishReason, now: float, *, error: str | None = None) -> None:
        """End a live request, all its choices, in whatever state it is."""
        family.error = error
        if family.parked_at is not None:
            family.parked_s += now - family.parked_at
            family.parked_at = None
        for seq in tuple(family.living):
            self._leave(seq, finish, ())
        self._close(family, finish)

    def settle(self, family: Family) -> None:
        """Give back what ended choices hold and nothing names any more, and with the last of them all the rest."""
        if family.is_copying:
            return
        for seq in tuple(family.leaving):
            if seq.num_flights == 0:
                self._roster.release(seq)
        if not family.living and not family.leaving:
            self._roster.dissolve(family)
            self._outbox.report(
                Finished,
                request_id=family.request_id,
                num_tokens=family.num_tokens,
                reason=family.finish,
                error=family.error,
            )

    def take_finished(self) -> tuple[int, ...]:
        """Ids for the next plan's `finished`."""
        if not self._to_forget:
            return ()
        ids, self._to_forget = tuple(self._to_forget), []
        return ids

    def _leave(self, seq: Sequence, finish: FinishReason, tokens: tuple[int, ...]) -> None:
        seq.finish = finish
        self._roster.leave(seq)
        if seq.is_on_ranks:
            self._to_forget.append(seq.seq_id)
        self._outbox.say(seq, tokens, finish)

    def _close(self, family: Family, finish: FinishReason) -> None:
        family.finish = finish
        self._parking.forget(family)
        self._roster.place(family, State.ENDED)
        self.settle(family)
