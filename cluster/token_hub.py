"""The engine's end of the token link: one connection a gateway, one frame a step, and no gateway can stall the engine.

What a gateway does not take stays in its socket's buffer, up to a bound; what is for a gateway that has not connected
yet is kept, up to a bound. Beyond either the gateway counts as lost: its connection is closed and `on_lost` told, so
that its requests can be cancelled. Tokens are never dropped from the middle of a stream.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from cluster.token_wire import VERSION, GatewayHello, HubWelcome, decode_hello, encode
from scheduler.messages import TokenEvent
from workers.link.endpoint import Endpoint, Listener, listen, new_token, new_unix_endpoint
from workers.link.errors import BadFrame
from workers.link.frames import MAX_HELLO_BYTES, FrameSplitter, frame

log = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 16 * 1024 * 1024
MAX_EARLY_EVENTS = 65_536
MAX_EARLY_GATEWAYS = 256
_HELLO_TIMEOUT_S = 10.0


class TokenHub:
    """Server side. `on_lost(gateway_id)` is called once for each gateway that went away or was given up."""

    def __init__(self, on_lost: Callable[[str], None], *, max_unsent_bytes: int = MAX_UNSENT_BYTES) -> None:
        self.token = new_token()
        self._on_lost = on_lost
        self._max_unsent_bytes = max_unsent_bytes
        self._listener: Listener | None = None
        self._gateways: dict[str, GatewayConnection] = {}
        self._early: dict[str, list[TokenEvent]] = {}

    async def open(self, endpoint: Endpoint | None = None) -> str:
        """Listen; returns where gateways connect (a private Unix socket unless another endpoint is given)."""
        self._listener = await listen(endpoint or new_unix_endpoint(), lambda: GatewayConnection(self))
        return str(self._listener.endpoint)

    def send(self, batches: Mapping[str, Sequence[TokenEvent]]) -> None:
        """One step's events by gateway. Never waits."""
        for gateway_id, events in batches.items():
            connection = self._gateways.get(gateway_id)
            if connection is None:
                self._keep(gateway_id, events)
            else:
                self._write(gateway_id, connection, events)

    def close(self) -> None:
        """Hang up on all gateways after what was sent to them. Idempotent; `on_lost` is not called for them."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        gateways, self._gateways = self._gateways, {}
        for connection in gateways.values():
            connection.hang_up()

    # ---- called by GatewayConnection

    def take_hello(self, connection: "GatewayConnection", hello: GatewayHello) -> str | None:
        """The refusal, empty when the gateway is taken; None when the peer deserves no word."""
        if not hmac.compare_digest(hello.token.encode(), self.token.encode()):
            log.warning("a peer without the token link's secret was turned away")
            return None
        if hello.version != VERSION:
            return f"it speaks version {hello.version} of the token link, the engine version {VERSION}"
        if hello.gateway_id in self._gateways:
            return f"gateway {hello.gateway_id} is connected already"
        self._gateways[hello.gateway_id] = connection
        return ""

    def welcomed(self, gateway_id: str, connection: "GatewayConnection") -> None:
        """The welcome is written: what came early follows."""
        if early := self._early.pop(gateway_id, None):
            self._write(gateway_id, connection, early)

    def lost(self, gateway_id: str) -> None:
        if self._gateways.pop(gateway_id, None) is not None:
            log.info("gateway %s is gone", gateway_id)
            self._on_lost(gateway_id)

    def _write(self, gateway_id: str, connection: "GatewayConnection", events: Sequence[TokenEvent]) -> None:
        if connection.write(frame(encode(events))) > self._max_unsent_bytes:
            log.error("gateway %s leaves more than %d bytes unread: given up", gateway_id, self._max_unsent_bytes)
            connection.abort()
            self.lost(gateway_id)

    def _keep(self, gateway_id: str, events: Sequence[TokenEvent]) -> None:
        if gateway_id not in self._early and len(self._early) >= MAX_EARLY_GATEWAYS:
            log.error("%d gateways have not connected: the events of %s are dropped", len(self._early), gateway_id)
            self._on_lost(gateway_id)
            return
        kept = self._early.setdefault(gateway_id, [])
        kept.extend(events)
        if len(kept) > MAX_EARLY_EVENTS:
            log.error("gateway %s has not connected and %d events wait for it: given up", gateway_id, len(kept))
            del self._early[gateway_id]
            self._on_lost(gateway_id)


class GatewayConnection(asyncio.Protocol):
    """One gateway as the hub sees it. It says hello, then only listens."""

    def __init__(self, hub: TokenHub) -> None:
        self._hub = hub
        self._splitter = FrameSplitter(MAX_HELLO_BYTES)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._gateway_id: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(_HELLO_TIMEOUT_S, self.hang_up)

    def data_received(self, data: bytes) -> None:
        if self._gateway_id is not None:
            self._end("a gateway sent more than its hello")
            return
        self._splitter.feed(data)
        try:
            payload = self._splitter.next_payload()
            if payload is not None:
                self._greet(decode_hello(payload))
        except (BadFrame, msgspec.DecodeError) as error:
            self._end(f"a peer sent what is no hello: {error}")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the seam's signature
        gateway_id = self._gateway_id
        self.hang_up()
        if gateway_id is not None:
            self._hub.lost(gateway_id)

    def write(self, data: bytes) -> int:
        """The number of bytes that the system has not taken yet."""
        if self._transport is None:
            return 0
        self._transport.write(data)
        return self._transport.get_write_buffer_size()

    def hang_up(self) -> None:
        """Close after what was written. Idempotent; the hub is not told."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._gateway_id = None
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def abort(self) -> None:
        """Close at once and forget what was written."""
        if self._transport is not None:
            self._transport.abort()
        self.hang_up()

    def _greet(self, hello: GatewayHello) -> None:
        refusal = self._hub.take_hello(self, hello)
        if refusal is not None:
            self.write(frame(encode(HubWelcome(refusal=refusal))))
        if refusal != "":
            self.hang_up()
            return
        self._gateway_id = hello.gateway_id
        if self._deadline is not None:
            self._deadline.cancel()
        self._hub.welcomed(hello.gateway_id, self)

    def _end(self, reason: str) -> None:
        log.warning("%s", reason)
        gateway_id = self._gateway_id
        self.hang_up()
        if gateway_id is not None:
            self._hub.lost(gateway_id)
