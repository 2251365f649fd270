"""Admission with its senders: the pure core, an ordered line to each engine, and the requests of each gateway.

Plain asyncio; the actor round it adds Ray's calls and nothing else.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster.cluster_spec import TokenAddress
from cluster.ordered_sender import OrderedSender
from scheduler.admission import Addressed, AdmissionCore, AdmissionPolicy, AdmissionRefused, GroupCapacity
from scheduler.messages import Command, Deferred, EngineEvent, Finished, Submission

log = logging.getLogger(__name__)

_MAX_WAITING = 100_000
_PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class GatewayLost:
    """An engine's word: nobody takes the tokens of this gateway's requests any more."""

    gateway_id: str


@dataclass(frozen=True, slots=True)
class EngineLost:
    """An engine's last word: its ranks are gone, and what it had is failed."""

    reason: str


EngineWord = EngineEvent | GatewayLost | EngineLost


class EnginePort:
    """How the desk reaches one engine: `send` keeps the order of commands, `probe` returns after a turn of its loop."""

    def __init__(
        self,
        address: TokenAddress,
        send: Callable[[Sequence[Command]], Awaitable[None]],
        probe: Callable[[], Awaitable[None]],
    ) -> None:
        self.address = address
        self.send = send
        self.probe = probe


class AdmissionDesk:
    """One event loop owns it. Call `tick` once a second."""

    def __init__(self, policy: AdmissionPolicy, now: Callable[[], float] = time.monotonic) -> None:
        self._core = AdmissionCore(policy)
        self._now = now
        self._ports: dict[str, EnginePort] = {}
        self._lines: dict[str, OrderedSender[Command]] = {}
        self._gateway_of: dict[str, str] = {}

    @property
    def addresses(self) -> list[TokenAddress]:
        """Where gateways find the tokens of each group."""
        return [port.address for port in self._ports.values()]

    def register(self, capacity: GroupCapacity, port: EnginePort) -> None:
        """Take an engine in. ValueError if its group is known."""
        group_id = capacity.group_id
        self._core.add_group(capacity)
        self._ports[group_id] = port
        self._lines[group_id] = OrderedSender(
            port.send, lambda error: self.lose_group(group_id, str(error) or type(error).__name__), _MAX_WAITING
        )
        self._send(self._core.tick(self._now()))

    def submit(self, submission: Submission) -> AdmissionRefused | None:
        """The refusal, or None when the request is taken."""
        try:
            orders = self._core.submit(submission, self._now())
        except AdmissionRefused as refusal:
            return refusal
        self._gateway_of[submission.request_id] = submission.gateway_id
        self._send(orders)
        return None

    def cancel(self, request_id: str) -> None:
        """End a request in whatever state; an unknown id is a no-op."""
        orders = self._core.cancel(request_id, self._now())
        if not self._core.knows(request_id):  # it was queued: no engine will say that it has finished
            self._gateway_of.pop(request_id, None)
        self._send(orders)

    def take_words(self, group_id: str, words: Iterable[EngineWord]) -> None:
        """What an engine says, in its order."""
        for word in words:
            match word:
                case GatewayLost(gateway_id=gateway_id):
                    self.lose_gateway(gateway_id)
                case EngineLost(reason=reason):
                    self._retire(group_id, reason)
                case _:
                    self._send(self._core.on_event(word, self._now()))
                    # A request that was cancelled before its engine had room for it ends with a Deferred.
                    if isinstance(word, Finished | Deferred) and not self._core.knows(word.request_id):
                        self._gateway_of.pop(word.request_id, None)

    def tick(self) -> None:
        self._send(self._core.tick(self._now()))

    def lose_gateway(self, gateway_id: str) -> None:
        """Cancel all that a gateway which is gone had asked for."""
        mine = [request_id for request_id, owner in self._gateway_of.items() if owner == gateway_id]
        log.info("gateway %s is gone: %d requests are cancelled", gateway_id, len(mine))
        for request_id in mine:
            self.cancel(request_id)

    def lose_group(self, group_id: str, reason: str) -> None:
        """Forget an engine that cannot be reached. Its gateways see it by the end of their token links."""
        port = self._ports.pop(group_id, None)
        if port is None:
            return
        self._lines.pop(group_id).close()
        lost = self._core.remove_group(group_id, self._now())
        for request_id in lost:
            self._gateway_of.pop(request_id, None)
        log.error("group %s is lost with %d requests: %s", group_id, len(lost), reason)
        self._send(self._core.tick(self._now()))

    async def status(self) -> dict[str, Any]:
        """A snapshot after each engine's loop has made a turn. Raises RuntimeError naming the engine that did not."""
        await asyncio.gather(*(self._probe(group_id, port) for group_id, port in self._ports.items()))
        return asdict(self._core.status(self._now()))

    async def flush(self) -> None:
        """Returns when every engine has taken the commands that were given."""
        await asyncio.gather(*(line.flush() for line in self._lines.values()))

    def check_integrity(self) -> None:
        """Raises AdmissionCorrupt."""
        self._core.check_integrity()

    async def _probe(self, group_id: str, port: EnginePort) -> None:
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                await port.probe()
        except TimeoutError:
            raise RuntimeError(f"the engine of {group_id} made no turn within {_PROBE_TIMEOUT_S:g} s") from None

    def _retire(self, group_id: str, reason: str) -> None:
        """Ranks are lost, the engine answers still: with another group left it gets nothing more to do.

        The last one stays, because it tells every request that comes why it fails.
        """
        if len(self._ports) > 1:
            self.lose_group(group_id, reason)

    def _send(self, orders: Iterable[Addressed]) -> None:
        for order in orders:
            line = self._lines.get(order.group_id)
            if line is not None:
                line.put(order.command)
