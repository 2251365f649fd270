"""Orders from outside for requests that live: look, end, park, unpark, priority; and draining the whole.

`owner` says who asks: a key's name or else its digest, "" when nobody is told apart, or None for one who sees all.
Another owner's request is an `UnknownRequest`. What raises has changed nothing.
"""

from dataclasses import replace

from cluster.core_host import CoreHost
from scheduler.admission import HoldTerms, RequestRow, UnknownRequest, WrongState

_OUT = ("queued", "parked")


class OrderDesk:
    """Works on the same core as the admission desk that made it."""

    def __init__(self, host: CoreHost) -> None:
        self._host = host
        self._draining = False

    def requests(self, owner: str | None) -> list[RequestRow]:
        """In order of arrival."""
        rows = self._host.core.status(self._host.now()).requests
        return [row for row in rows if owner is None or row.owner == owner]

    def request(self, request_id: str, owner: str | None) -> RequestRow:
        """Raises UnknownRequest."""
        row = self._host.row(request_id)
        if row is None or (owner is not None and row.owner != owner):
            raise UnknownRequest(request_id)
        return row

    def end(self, request_id: str, owner: str | None) -> RequestRow:
        """Cancel it, and have its gateway told. Of one that is being cancelled: a no-op."""
        before = self.request(request_id, owner)
        self._host.cancel(request_id, by="order")
        return self._host.row(request_id) or replace(before, cancelling=True)

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float) -> RequestRow:
        """Returns when it is out of pool and seats, or as it is after `wait_s`. Raises OrderRefused.

        `WrongState` also when the engine could not park it, or it ended first.
        """
        host = self._host
        self.request(request_id, owner)
        orders = host.core.park(request_id, terms, host.now())
        host.hold(request_id, on=True)
        before = self.request(request_id, None)
        host.chronicle.held(before, terms)
        host.settle(before)
        host.carry_out(orders)
        await host.waits.until(request_id, lambda: self._is_parked(request_id), wait_s)
        return self._parked_row(request_id, before.owner)

    async def unpark(self, request_id: str, owner: str | None, wait_s: float) -> RequestRow:
        """Returns when it runs, or as it is after `wait_s`. Raises OrderRefused."""
        host = self._host
        before = self.request(request_id, owner)
        orders = host.core.unpark(request_id, host.now())
        row = self.request(request_id, None)
        if before.held and not row.held:
            host.chronicle.unheld(row, "order")
        host.settle(before)
        host.carry_out(orders)
        await host.waits.until(request_id, lambda: self._is_back(request_id), wait_s)
        return self._still(request_id, before.owner) or row

    def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow:
        """Raises OrderRefused."""
        host = self._host
        before = self.request(request_id, owner)
        orders = host.core.set_priority(request_id, priority, host.now())
        row = self.request(request_id, None)
        if row.priority != before.priority:
            host.chronicle.priority_changed(row, before.priority)
        host.carry_out(orders)
        return self.request(request_id, None)

    def drain(self) -> None:
        """Idempotent."""
        self._drain(True)

    def undrain(self) -> None:
        """Idempotent."""
        self._drain(False)

    def _drain(self, on: bool) -> None:
        host = self._host
        (host.core.drain if on else host.core.undrain)(host.now())
        if on != self._draining:
            self._draining = on
            host.chronicle.of_all("draining" if on else "undrained")

    def _is_parked(self, request_id: str) -> bool:
        """Or never will be by this order."""
        row = self._host.row(request_id)
        return row is None or row.cancelling or not row.held or row.state in _OUT

    def _still(self, request_id: str, owner: str) -> RequestRow | None:
        """After a wait: ids may be chosen, and another owner's request may have this one by now."""
        row = self._host.row(request_id)
        return row if row is not None and row.owner == owner else None

    def _parked_row(self, request_id: str, owner: str) -> RequestRow:
        row = self._still(request_id, owner)
        if row is None:
            raise WrongState(request_id, "ended", "it came to its end before it was parked")
        if row.cancelling:
            raise WrongState(request_id, "ending", "it was cancelled before it was parked")
        failure = self._host.core.hold_failure(request_id)
        if not row.held and failure is not None:
            raise WrongState(request_id, row.state, failure)
        return row

    def _is_back(self, request_id: str) -> bool:
        row = self._host.row(request_id)
        return row is None or row.cancelling or row.held or row.state == "resident"
