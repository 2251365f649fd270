"""A naive observer of one admission core: lists and sums, kept beside it and compared with it after every event.

It knows who should live, who is held until when, how often each parked request was passed, and when each was parked
last; and it judges every order against the rows as they stand. It knows nothing of how admission decides.
"""

from dataclasses import dataclass, field

from scheduler.admission import Addressed, AdmissionCore, AdmissionPolicy, HoldEnd, HoldTerms, RequestRow
from scheduler.messages import Admit, EngineEvent, Finished, Park, Parked, ParkFailed, ParkReason, Restore, Restored

POLICY = AdmissionPolicy()


@dataclass
class Watcher:
    core: AdmissionCore
    alive: set[str] = field(default_factory=set)
    held: dict[str, tuple[float | None, HoldEnd]] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    parked_at_token: dict[str, int] = field(default_factory=dict)
    failed_at: dict[str, float] = field(default_factory=dict)

    # ---- what was asked

    def takes(self, request_id: str) -> None:
        self.alive.add(request_id)

    def cancels(self, request_id: str) -> None:
        """One that no engine knows is gone at once."""
        if self.core.row(request_id, 0.0) is None:
            self.gone(request_id)

    def holds(self, request_id: str, terms: HoldTerms, now: float) -> None:
        self.held[request_id] = (None if terms.deadline_s is None else now + terms.deadline_s, terms.then)
        self.passed.pop(request_id, None)

    def due(self, now: float) -> list[str]:
        """Held ones whose time is up and who are not ending anyhow."""
        ids = [request_id for request_id, (ends_at, _) in self.held.items() if ends_at is not None and ends_at <= now]
        return [request_id for request_id in ids if (row := self.core.row(request_id, now)) and not row.cancelling]

    def ends_holds(self, due: list[str]) -> None:
        for request_id in due:
            if self.held[request_id][1] is HoldEnd.UNPARK:
                del self.held[request_id]
            else:
                self.cancels(request_id)

    def gone(self, request_id: str) -> None:
        self.alive.discard(request_id)
        for book in (self.held, self.passed, self.parked_at_token, self.failed_at):
            book.pop(request_id, None)

    def world_changed(self) -> None:
        """Somebody outside has asked for something: what may not repeat by itself may be asked for again."""
        self.parked_at_token.clear()

    # ---- what was heard and ordered

    def hears(self, event: EngineEvent, generated: int, now: float) -> None:
        match event:
            case Finished():
                self.gone(event.request_id)
            case ParkFailed():
                self.held.pop(event.request_id, None)
                self.failed_at[event.request_id] = now
            case Restored():
                self.passed.pop(event.request_id, None)
            case Parked() if event.reason is ParkReason.PRESSURE:
                before = self.parked_at_token.get(event.request_id, -1)
                assert generated > before, f"{event.request_id} was parked twice and nobody got a token between"
                self.parked_at_token[event.request_id] = generated
            case _:
                pass

    def judges(self, orders: list[Addressed], now: float) -> None:
        if not orders:
            return
        rows = {row.request_id: row for row in self.core.status(now).requests}
        for order in orders:
            command = order.command
            if isinstance(command, Admit):
                self._parked_came_first(rows, rows[command.submission.request_id])
            elif isinstance(command, Restore):
                self._count_passes(rows, rows[command.request_id])
            elif isinstance(command, Park):
                self._has_a_reason(rows, rows[command.request_id], command.reason)
                if command.reason is ParkReason.PRESSURE:
                    self._lower_ones_went_first(rows, rows[command.request_id], now)

    def _in_line(self, rows: dict[str, RequestRow], group_id: str | None) -> list[RequestRow]:
        """The parked of a group that may come back."""
        return [
            row
            for row in rows.values()
            if row.state == "parked" and row.group_id == group_id and not (row.held or row.cancelling)
        ]

    def _parked_came_first(self, rows: dict[str, RequestRow], fresh: RequestRow) -> None:
        if fresh.state != "resident" or fresh.parks:
            return  # it has been told to leave in the same breath
        for row in self._in_line(rows, fresh.group_id):
            assert tier(row) < tier(fresh), f"{fresh.request_id} entered before {row.request_id} came back"

    def _count_passes(self, rows: dict[str, RequestRow], back: RequestRow) -> None:
        for row in self._in_line(rows, back.group_id):
            if tier(row) > tier(back):
                self.passed[row.request_id] = self.passed.get(row.request_id, 0) + 1
                assert self.passed[row.request_id] <= POLICY.max_passes, f"{row.request_id} is passed for ever"

    def _has_a_reason(self, rows: dict[str, RequestRow], victim: RequestRow, reason: ParkReason) -> None:
        match reason:
            case ParkReason.EXPLICIT:
                assert victim.request_id in self.held
            case ParkReason.SEAT:
                waiting = [row for row in rows.values() if row.state in ("queued", "parked", "resident", "restoring")]
                assert any(row.priority > victim.priority and not row.held for row in waiting), "equals displaced"
            case ParkReason.PRESSURE:
                mates = [row for row in rows.values() if row.group_id == victim.group_id and row.state == "resident"]
                assert any(not row.cancelling for row in mates), "pressure left nobody runnable"

    def _lower_ones_went_first(self, rows: dict[str, RequestRow], victim: RequestRow, now: float) -> None:
        """Nobody of a lower tier stays where somebody is parked for pressure, the survivor no more than another. Left
        aside is who can't be parked: its engine has not shown it yet, its park failed just now, the arena is full."""
        mates = [row for row in rows.values() if row.group_id == victim.group_id]
        ledger = self.core._books.ledgers[victim.group_id or ""]
        arena_free = 0 if ledger.load is None else ledger.load.arena_free
        room = arena_free - sum(row.pages for row in mates if row.state == "parking")
        for row in mates:
            shown = row.state == "resident" and not row.cancelling and row.pages > 0
            failed_now = now < self.failed_at.get(row.request_id, -1e9) + POLICY.park_retry_s
            if shown and not failed_now and (ledger.capacity.recompute or row.pages <= room):
                assert row.effective_priority >= victim.effective_priority, f"{victim.request_id} for {row.request_id}"

    # ---- what must hold

    def agrees(self, now: float) -> None:
        self.core.check_integrity()
        records = self.core._books.records
        assert set(records) == self.alive
        assert {request_id for request_id, record in records.items() if record.held} == set(self.held)
        for record in records.values():
            assert record.passes <= POLICY.max_passes
            assert 0.0 <= record.waited_s(now) <= now - record.born_at + 1e-6
        to_come = [ends_at for ends_at, _ in self.held.values() if ends_at is not None and ends_at > now]
        first = self.core.next_deadline
        assert (first is not None and first <= now) or first == min(to_come, default=None)


def tier(row: RequestRow) -> int:
    """The tier at which it waits: its own, lifted by age."""
    return row.effective_priority + POLICY.ageing(row.waited_s)
