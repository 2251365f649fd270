"""One ordered line to each engine, from admission."""

import asyncio
from collections.abc import Callable

from cluster.cluster_spec import TokenAddress
from cluster.engine_port import EngineOrder, EnginePort, Farewell
from cluster.ordered_sender import OrderedSender
from scheduler.admission import Addressed

_MAX_WAITING = 100_000
_PROBE_TIMEOUT_S = 10.0


class EngineLines:
    """`on_lost(group_id, reason)` is called once for a group whose engine takes nothing any more."""

    def __init__(self, on_lost: Callable[[str, str], None]) -> None:
        self._on_lost = on_lost
        self._ports: dict[str, EnginePort] = {}
        self._lines: dict[str, OrderedSender[EngineOrder]] = {}

    def __len__(self) -> int:
        return len(self._ports)

    @property
    def addresses(self) -> list[TokenAddress]:
        """Where gateways find the tokens of each group."""
        return [port.address for port in self._ports.values()]

    def open(self, group_id: str, port: EnginePort) -> None:
        """A group of that name must not be open."""
        self._ports[group_id] = port
        self._lines[group_id] = OrderedSender(
            port.send, lambda error: self._on_lost(group_id, str(error) or type(error).__name__), _MAX_WAITING
        )

    def close(self, group_id: str) -> bool:
        """Drop what waits for it. False if there is none such."""
        if self._ports.pop(group_id, None) is None:
            return False
        self._lines.pop(group_id).close()
        return True

    def send(self, order: Addressed) -> None:
        """Never waits. To a group that is gone: dropped."""
        line = self._lines.get(order.group_id)
        if line is not None:
            line.put(order.command)

    def say(self, farewell: Farewell) -> None:
        """Through whichever engine comes first: gateways are connected to all. Without one there is no gateway that
        still waits."""
        for line in self._lines.values():
            line.put(farewell)
            return

    async def probe(self) -> None:
        """After a turn of every engine's loop. Raises RuntimeError naming the engine that made none.

        An engine answers sooner than the bound here, whatever its ranks are at.
        """
        await asyncio.gather(*(self._probe(group_id, port) for group_id, port in self._ports.items()))

    async def flush(self) -> None:
        """Returns when every engine has taken what was sent."""
        await asyncio.gather(*(line.flush() for line in self._lines.values()))

    async def _probe(self, group_id: str, port: EnginePort) -> None:
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                await port.probe()
        except TimeoutError:
            raise RuntimeError(f"the engine of {group_id} made no turn within {_PROBE_TIMEOUT_S:g} s") from None
