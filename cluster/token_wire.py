"""The messages of the token link: a hello from the gateway, then one list of TokenEvents a step from the engine."""

import msgspec

from scheduler.messages import TokenEvent

VERSION = 2


class GatewayHello(msgspec.Struct, frozen=True):
    """`token` is the secret of the engine's `TokenAddress`."""

    version: int
    token: str
    gateway_id: str


class HubWelcome(msgspec.Struct, frozen=True):
    """`refusal` is empty when the gateway is taken."""

    refusal: str = ""


encode = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(GatewayHello).decode
decode_welcome = msgspec.msgpack.Decoder(HubWelcome).decode
decode_events = msgspec.msgpack.Decoder(list[TokenEvent]).decode
