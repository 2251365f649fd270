"""How admission reaches an engine, and what an engine says beyond its events."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from cluster.cluster_spec import TokenAddress
from scheduler.messages import Command, EngineEvent, FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Farewell:
    """Admission's word through any engine: a request that no engine knows has ended; tell its gateway, choice by
    choice."""

    request_id: str
    gateway_id: str
    choices: int
    finish: FinishReason
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GatewayLost:
    """An engine's word: nobody takes the tokens of this gateway's requests any more."""

    gateway_id: str


@dataclass(frozen=True, slots=True)
class EngineLost:
    """An engine's last word: its ranks are gone, and what it had is failed."""

    reason: str


EngineOrder = Command | Farewell
EngineWord = EngineEvent | GatewayLost | EngineLost


class EnginePort:
    """`send` keeps the order of what it is given, `probe` returns after a turn of the engine's loop."""

    def __init__(
        self,
        address: TokenAddress,
        send: Callable[[Sequence[EngineOrder]], Awaitable[None]],
        probe: Callable[[], Awaitable[None]],
    ) -> None:
        self.address = address
        self.send = send
        self.probe = probe
