"""The admission core with the consequences of what it decides: commands go to their engines, callers are woken, those
who read a request hear of its end, the next deadline sets an alarm, and the chronicle is told."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.chronicle import Chronicle
from cluster.engine_lines import EngineLines
from cluster.engine_port import Farewell
from cluster.waits import Waits
from scheduler.admission import Addressed, AdmissionCore, RequestRow
from scheduler.messages import Admit, FinishReason, Submission


@dataclass(slots=True)
class _Reader:
    """Where a request's tokens go. `listens`: the gateway wants to hear of its end."""

    gateway_id: str
    choices: int
    listens: bool = True


class CoreHost:
    """One event loop owns it. Whoever calls the core hands what it returns to `carry_out`."""

    def __init__(self, core: AdmissionCore, lines: EngineLines, chronicle: Chronicle, now: Callable[[], float]) -> None:
        self.core = core
        self.lines = lines
        self.chronicle = chronicle
        self.waits = Waits()
        self.now = now
        self._readers: dict[str, _Reader] = {}
        self._held: set[str] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float | None = None

    # ---- the living

    def row(self, request_id: str) -> RequestRow | None:
        return self.core.row(request_id, self.now())

    def welcome(self, submission: Submission) -> None:
        """It was taken."""
        self._readers[submission.request_id] = _Reader(submission.gateway_id, submission.n)

    def read_by(self, gateway_id: str) -> list[str]:
        """Ids of the requests whose tokens go to that gateway."""
        return [request_id for request_id, reader in self._readers.items() if reader.gateway_id == gateway_id]

    def cancel(self, request_id: str, by: str, *, listens: bool = True) -> None:
        """End a request in whatever state; an unknown id is a no-op. Without `listens` nobody need be told."""
        before = self.row(request_id)
        if before is None:
            return
        self._readers[request_id].listens &= listens
        if not before.cancelling:
            orders = self.core.cancel(request_id, self.now())
            self.chronicle.cancelled(before, by)
            self.settle(before)
            self.carry_out(orders)

    def hold(self, request_id: str, on: bool) -> None:
        """It is held from now on, or not any more."""
        (self._held.add if on else self._held.discard)(request_id)

    def settle(self, before: RequestRow) -> RequestRow | None:
        """Something has happened to a request: wake those who wait for it, and see to its end if it has ended."""
        after = self.row(before.request_id)
        if after is None:
            # Whatever ends with an engine's word has been told by the engine; the rest has no engine that could.
            self.bury(before, FinishReason.CANCELLED)
        elif not after.held:
            self._held.discard(before.request_id)
        self.waits.wake(before.request_id)
        return after

    def farewell_by_engine(self, request_id: str) -> None:
        """Its engine has told the gateway of its end."""
        self._readers.pop(request_id, None)

    def bury(self, before: RequestRow, finish: FinishReason, error: str | None = None) -> None:
        """A request that is gone from the core. Unless an engine has said so already: tell its gateway."""
        request_id = before.request_id
        self._held.discard(request_id)
        reader = self._readers.pop(request_id, None)
        if reader is None:
            return
        self.chronicle.ended(before, finish, error)
        if reader.listens:
            self.lines.say(
                Farewell(
                    request_id=request_id,
                    gateway_id=reader.gateway_id,
                    choices=reader.choices,
                    finish=finish,
                    error=error,
                )
            )

    # ---- decisions and time

    def carry_out(self, orders: Iterable[Addressed]) -> None:
        """Send the core's orders, in their order."""
        for order in orders:
            command = order.command
            request_id = command.submission.request_id if isinstance(command, Admit) else command.request_id
            self.chronicle.ordered(order, self.row(request_id))
            self.lines.send(order)
            self.waits.wake(request_id)
        self._set_alarm()

    def tick(self) -> None:
        """Time has passed: ages have grown, and holds may have come to their end."""
        now = self.now()
        deadline = self.core.next_deadline
        due = deadline is not None and deadline <= now
        held = [row for request_id in self._held if (row := self.row(request_id)) is not None] if due else []
        orders = self.core.tick(now)
        for before in held:
            self._after_deadline(before)
        self.carry_out(orders)

    def _after_deadline(self, before: RequestRow) -> None:
        after = self.row(before.request_id)
        if after is None or (after.cancelling and not before.cancelling):
            self.chronicle.cancelled(before, "deadline")
        elif not after.held:
            self.chronicle.unheld(after, "deadline")
        else:
            return
        self.settle(before)

    def _set_alarm(self) -> None:
        """Between two ticks the next deadline has a timer of its own."""
        deadline = self.core.next_deadline
        if deadline == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, deadline
        if deadline is not None:
            delay_s = max(0.0, deadline - self.now())
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = self._alarm_at = None
        self.tick()
