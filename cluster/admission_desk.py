"""Admission as gateways and engines meet it: submissions and cancels from the ones, words from the others.

Plain asyncio; the actor round it adds Ray's calls and nothing else. `orders` is the desk for orders from outside.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

from cluster.admission_figures import AdmissionGauges
from cluster.chronicle import Chronicle, Publish
from cluster.cluster_spec import TokenAddress
from cluster.core_host import CoreHost
from cluster.engine_lines import EngineLines
from cluster.engine_port import EngineLost, EnginePort, EngineWord, GatewayLost
from cluster.order_desk import OrderDesk
from cluster.watch import WatchRing
from scheduler.admission import AdmissionCore, AdmissionPolicy, AdmissionRefused, GroupCapacity
from scheduler.messages import EngineEvent, Finished, FinishReason, Pressure, Progress, Submission

log = logging.getLogger(__name__)


class AdmissionDesk:
    """One event loop owns it. Call `tick` once a second. `publish` takes readings of the admission instruments."""

    def __init__(
        self,
        policy: AdmissionPolicy,
        now: Callable[[], float] = time.monotonic,
        *,
        unix_s: Callable[[], float] = time.time,
        publish: Publish = lambda _: None,
    ) -> None:
        self._core = AdmissionCore(policy)
        self._now = now
        self._publish = publish
        self._gauges = AdmissionGauges()
        self._page_bytes: dict[str, int] = {}
        self._lines = EngineLines(self.lose_group)
        self.watch = WatchRing(unix_s)
        self._chronicle = Chronicle(self.watch, publish)
        self._host = CoreHost(self._core, self._lines, self._chronicle, now)
        self.orders = OrderDesk(self._host)

    @property
    def addresses(self) -> list[TokenAddress]:
        """Where gateways find the tokens of each group."""
        return self._lines.addresses

    # ---- gateways

    def check_room(self) -> None:
        """Raises AdmissionRefused if no request at all would be taken now."""
        try:
            self._core.check_room(self._now())
        except AdmissionRefused as refusal:
            self._chronicle.refused(refusal)
            raise

    def submit(self, submission: Submission) -> None:
        """Take a request in. Raises AdmissionRefused."""
        try:
            orders = self._core.submit(submission, self._now())
        except AdmissionRefused as refusal:
            self._chronicle.refused(refusal)
            raise
        self._host.welcome(submission)
        row = self._host.row(submission.request_id)
        assert row is not None
        self._chronicle.submitted(row)
        self._host.carry_out(orders)

    def cancel(self, request_id: str) -> None:
        """Its gateway reads it no more: end it in whatever state. An unknown id is a no-op."""
        self._host.cancel(request_id, by="gateway", listens=False)

    def lose_gateway(self, gateway_id: str) -> None:
        """Cancel all that a gateway which is gone had asked for."""
        mine = self._host.read_by(gateway_id)
        log.info("gateway %s is gone: %d requests are cancelled", gateway_id, len(mine))
        for request_id in mine:
            self.cancel(request_id)

    # ---- engines

    def register(self, capacity: GroupCapacity, port: EnginePort) -> None:
        """Take an engine in. ValueError if its group is known."""
        self._core.add_group(capacity)
        self._chronicle.joined(capacity.group_id, capacity.num_pages)
        self._page_bytes[capacity.group_id] = capacity.page_bytes
        self._lines.open(capacity.group_id, port)
        self.tick()

    def take_words(self, group_id: str, words: Iterable[EngineWord]) -> None:
        """What an engine says, in its order. Events that it made together must come in one call."""
        for word in words:
            match word:
                case GatewayLost(gateway_id=gateway_id):
                    self.lose_gateway(gateway_id)
                case EngineLost(reason=reason):
                    self._retire(group_id, reason)
                case _:
                    self._take_event(word)
        self._chronicle.caught_up(group_id)

    def lose_group(self, group_id: str, reason: str) -> None:
        """Forget an engine that cannot be reached. Its gateways see it by the end of their token links, too."""
        if not self._lines.close(group_id):
            return
        now = self._now()
        rows = {row.request_id: row for row in self._core.status(now).requests}
        lost = self._core.remove_group(group_id, now)
        self._chronicle.left(group_id)
        log.error("group %s is lost with %d requests: %s", group_id, len(lost), reason)
        for request_id in lost:
            self._host.bury(rows[request_id], FinishReason.ERROR, f"{group_id} is lost: {reason}")
            self._host.waits.wake(request_id)
        self.tick()

    # ---- time, and looking in

    def tick(self) -> None:
        """Only time has passed."""
        self._host.tick()

    def tell_gauges(self) -> None:
        """Publish how things stand."""
        self._publish(self._gauges.read(self._core.status(self._now()), self._page_bytes))

    async def status(self) -> dict[str, Any]:
        """Sums after each engine's loop has made a turn; the rows of requests are `orders`' to tell.

        Raises RuntimeError naming the engine that made none.
        """
        await self._lines.probe()
        sums = asdict(replace(self._core.status(self._now()), requests=()))
        del sums["requests"]
        return sums

    async def flush(self) -> None:
        """Returns when every engine has taken the commands that were given."""
        await self._lines.flush()

    def check_integrity(self) -> None:
        """Raises AdmissionCorrupt."""
        self._core.check_integrity()

    def _take_event(self, event: EngineEvent) -> None:
        now = self._now()
        before = None
        if not isinstance(event, Pressure | Progress):
            before = self._core.row(event.request_id, now)
            if before is not None and before.group_id != event.load.group_id:
                before = None
        orders = self._core.on_event(event, now)
        self._chronicle.heard(event, before, now)
        if before is not None:
            if isinstance(event, Finished):
                self._host.farewell_by_engine(before.request_id)
            self._host.settle(before)
        self._host.carry_out(orders)

    def _retire(self, group_id: str, reason: str) -> None:
        """Ranks are lost, the engine answers still: with another group left it gets nothing more to do.

        The last one stays, because it tells every request that comes why it fails.
        """
        if len(self._lines) > 1:
            self.lose_group(group_id, reason)
