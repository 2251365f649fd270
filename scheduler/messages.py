"""What admission, engines and gateways say to each other. A handful a request; none per token but `TokenEvent`.

Submission: gateway -> admission -> engine. Command: admission -> engine. EngineEvent: engine -> admission.
TokenEvent: engine -> gateway, in one batch a step.
"""

from dataclasses import dataclass
from enum import StrEnum

from scheduler.sampling import SamplingParams, StopRules


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class Notice(StrEnum):
    """What a stream is told between tokens."""

    PARKED = "parked"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A validated request. `request_id` is unguessable and unique; `gateway_id` names the outbox its tokens go to."""

    request_id: str
    gateway_id: str
    prompt_tokens: tuple[int, ...]
    sampling: SamplingParams
    stop: StopRules
    priority: int = 0


# ---- engine -> gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """New tokens of a request, or a notice, or its end. `finish` is set exactly once, on the last event."""

    request_id: str
    tokens: tuple[int, ...] = ()
    notice: Notice | None = None
    finish: FinishReason | None = None
    error: str | None = None
    parks: int = 0
    parked_s: float = 0.0


# ---- admission -> engine. `number` counts the commands to one group from 1 without a gap.


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    number: int
    submission: Submission


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    number: int
    request_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    number: int
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    number: int
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """End a request with an error its client will read."""

    number: int
    request_id: str
    error: str


Command = Admit | Park | Restore | Cancel | Fail

# ---- engine -> admission


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentLoad:
    """`num_tokens` known tokens (prompt and output), which need `pages_to_hold`; `num_pages` pages held."""

    request_id: str
    num_tokens: int
    num_pages: int
    pages_to_hold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad:
    """An engine's own account at one moment. It has carried out every command up to `last_command`."""

    group_id: str
    last_command: int
    pages_total: int
    pages_free: int
    arena_total: int
    arena_free: int
    residents: tuple[ResidentLoad, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Within the engine's lookahead the residents need `shortfall` pages more than are free."""

    load: GroupLoad
    shortfall: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """The copy out has landed on every rank; the pages are free."""

    load: GroupLoad
    request_id: str
    num_pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkFailed:
    """The victim runs on: no arena room, or a copy failed."""

    load: GroupLoad
    request_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    load: GroupLoad
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """An `Admit` or `Restore` found no room when it arrived; the request is where it was before."""

    load: GroupLoad
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The request has ended and everything it held is free. `error` only with `FinishReason.ERROR`."""

    load: GroupLoad
    request_id: str
    reason: FinishReason
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A periodic account, so that the ledger does not age."""

    load: GroupLoad


EngineEvent = Pressure | Parked | ParkFailed | Restored | Deferred | Finished | Progress
