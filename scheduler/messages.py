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
    """What a stream is told between tokens. RECOMPUTED follows RESUMED where pages were dropped, not copied."""

    PARKED = "parked"
    RESUMED = "resumed"
    RECOMPUTED = "recomputed"


class ParkReason(StrEnum):
    """PRESSURE: the pool runs short. SEAT: one of a higher priority takes its place. EXPLICIT: somebody ordered it."""

    PRESSURE = "pressure"
    SEAT = "seat"
    EXPLICIT = "explicit"


class ParkMode(StrEnum):
    """COPY: pages lie in the arena. RECOMPUTE: pages were dropped; the tokens are computed again later."""

    COPY = "copy"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A validated request. `request_id` is unique among the living; `gateway_id` names the outbox its tokens go to.

    `n` choices share the prompt: a family, which enters, parks and comes back as one. Choice i draws with seed + i,
    as 64-bit integers add.
    `owner` says whose it is, "" when nobody is told apart; it is no secret.
    """

    request_id: str
    gateway_id: str
    prompt_tokens: tuple[int, ...]
    sampling: SamplingParams
    stop: StopRules
    priority: int = 0
    n: int = 1
    owner: str = ""


# ---- engine -> gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """New tokens of one choice of a request, or its end, or a notice for all of them (then `choice` is 0).

    `finish` is set exactly once a choice, on its last event; the request has ended when every choice has. `parks`,
    `recomputes` and `parked_s` are those of the whole request so far.
    """

    request_id: str
    choice: int = 0
    tokens: tuple[int, ...] = ()
    notice: Notice | None = None
    finish: FinishReason | None = None
    error: str | None = None
    parks: int = 0
    recomputes: int = 0
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
    reason: ParkReason


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
    """`num_tokens`: the prompt, once, and the output of all choices, ended ones too.

    `seats` are its choices not ended yet; they hold `num_pages` pages, and their known tokens need `pages_to_hold`, the
    shared ones counted once.
    """

    request_id: str
    num_tokens: int
    seats: int
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
    """The pages are free: the copy out of `num_pages` has landed on every rank, or they were dropped (then 0).

    `num_tokens`, `seats` and `pages_to_hold` are those of a `ResidentLoad` at this moment: it is in no account until it
    is back, and they do not change until then. `copy_s` is the longest rank's time, `copy_bytes` the sum over ranks;
    both 0 without a copy. Same in `Restored`.
    """

    load: GroupLoad
    request_id: str
    num_tokens: int
    seats: int
    pages_to_hold: int
    num_pages: int
    mode: ParkMode
    reason: ParkReason
    copy_s: float = 0.0
    copy_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkFailed:
    """The victim runs on: a copy failed or found no arena room, and recomputing is not allowed."""

    load: GroupLoad
    request_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """It runs again. `mode` COPY: its pages were copied in. RECOMPUTE: it computes its tokens again; `reason` says why
    where a copy was meant to come back (a wrong checksum, a failed copy)."""

    load: GroupLoad
    request_id: str
    mode: ParkMode
    reason: str = ""
    copy_s: float = 0.0
    copy_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """An `Admit` or `Restore` found no room when it arrived; the request is where it was before."""

    load: GroupLoad
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The request has ended and everything it held is free. `num_tokens`: as in a `ResidentLoad`, at its end. `error`
    only with `FinishReason.ERROR`."""

    load: GroupLoad
    request_id: str
    num_tokens: int
    reason: FinishReason
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A periodic account, so that the ledger does not age."""

    load: GroupLoad


EngineEvent = Pressure | Parked | ParkFailed | Restored | Deferred | Finished | Progress
