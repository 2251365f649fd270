"""A gateway's end of the token link."""

import asyncio
from collections.abc import AsyncIterator

from cluster.cluster_spec import TokenAddress
from cluster.token_wire import VERSION, GatewayHello, decode_events, decode_welcome, encode
from scheduler.messages import TokenEvent
from workers.link.endpoint import parse_endpoint
from workers.link.errors import BadFrame, LinkClosed, LinkRefused
from workers.link.frames import MAX_FRAME_BYTES, frame

_LENGTH_BYTES = 4


class TokenClient:
    """Made by `connect`; iterate over it for one list of events after the other, in order. One reader."""

    def __init__(self, address: TokenAddress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.group_id = address.group_id
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: TokenAddress, gateway_id: str, timeout_s: float = 10.0) -> "TokenClient":
        """Raises LinkClosed when no engine listens there or answers in time, LinkRefused when it does not take us."""
        try:
            async with asyncio.timeout(timeout_s):
                client = cls(address, *await _open(address.endpoint))
                hello = GatewayHello(version=VERSION, token=address.token, gateway_id=gateway_id)
                client._writer.write(frame(encode(hello)))
                try:
                    payload = await client._read_payload()
                except BaseException:
                    await client.close()
                    raise
        except (OSError, TimeoutError) as error:
            raise LinkClosed(f"group {address.group_id} does not answer at {address.endpoint}: {error}") from error
        if payload is None:
            await client.close()
            raise LinkRefused(f"group {address.group_id} closed the token link without a word: is the secret right?")
        if refusal := decode_welcome(payload).refusal:
            await client.close()
            raise LinkRefused(f"group {address.group_id} refused gateway {gateway_id}: {refusal}")
        return client

    async def __aiter__(self) -> AsyncIterator[list[TokenEvent]]:
        """Ends when the engine hangs up: whatever has not finished by then never will."""
        while (payload := await self._read_payload()) is not None:
            yield decode_events(payload)

    async def close(self) -> None:
        """Hang up. Idempotent."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:  # the peer was faster
            return

    async def _read_payload(self) -> bytes | None:
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "little")
            if length > MAX_FRAME_BYTES:
                raise BadFrame(f"a frame of {length} bytes is above the bound of {MAX_FRAME_BYTES}")
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None


async def _open(endpoint_text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    endpoint = parse_endpoint(endpoint_text)
    if endpoint.path:
        return await asyncio.open_unix_connection(endpoint.path)
    return await asyncio.open_connection(endpoint.host, endpoint.port)
