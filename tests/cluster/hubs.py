"""Token hubs and clients for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cluster.cluster_spec import TokenAddress
from cluster.token_hub import TokenHub
from scheduler.messages import TokenEvent
from workers.link.endpoint import Endpoint


class Losses:
    """The gateways that a hub lost, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._some = asyncio.Event()

    def note(self, gateway_id: str) -> None:
        self.names.append(gateway_id)
        self._some.set()

    async def until_some(self) -> None:
        await asyncio.wait_for(self._some.wait(), 5)


@asynccontextmanager
async def open_hub(
    endpoint: Endpoint | None = None, *, max_unsent_bytes: int = 1 << 20
) -> AsyncIterator[tuple[TokenHub, TokenAddress, Losses]]:
    losses = Losses()
    hub = TokenHub(losses.note, max_unsent_bytes=max_unsent_bytes)
    address = TokenAddress(group_id="g", endpoint=await hub.open(endpoint), token=hub.token)
    try:
        yield hub, address, losses
    finally:
        hub.close()


def event(request_id: str, *tokens: int) -> TokenEvent:
    return TokenEvent(request_id=request_id, tokens=tokens)
