"""One request inside the engine: its counts, its place and what it owns. Decides nothing.

    num_scheduled <= num_expected = num_tokens + num_pending <= limit

`num_tokens` are known (prompt, and output that has been answered), `num_pending` are sampled by plans in flight, and
`num_scheduled` positions are computed or will be once the plans in flight have run. The difference is what is missing.
"""

from dataclasses import dataclass, field
from enum import Enum

from kv import PageTable
from scheduler.messages import FinishReason, Submission


class State(Enum):
    """RUNNING -> PARKING -> PARKED -> RESTORING -> RUNNING; ENDED from anywhere."""

    RUNNING = "running"
    PARKING = "parking"
    PARKED = "parked"
    RESTORING = "restoring"
    ENDED = "ended"


class Wish(Enum):
    """An order that came while the opposite copy was under way; carried out when that has landed."""

    PARK = "park"
    RESTORE = "restore"


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """`limit`: the number of tokens at which it ends. `max_pages`: the most it can ever hold. `num_flights`: plans in
    flight that name it; what it owns is kept until there are none."""

    seq_id: int
    submission: Submission
    limit: int
    max_pages: int
    table: PageTable
    num_tokens: int
    stop_ids: frozenset[int]
    num_pending: int = 0
    num_scheduled: int = 0
    num_flights: int = 0
    state: State = State.RUNNING
    wish: Wish | None = None
    is_on_ranks: bool = False
    arena_ids: tuple[int, ...] = ()
    parks: int = 0
    parked_s: float = 0.0
    parked_at: float | None = None
    park_reason: str = ""
    restore_failures: int = 0
    restore_failed_at: float = 0.0
    finish: FinishReason | None = None
    error: str | None = None
    request_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = self.submission.request_id

    @property
    def num_expected(self) -> int:
        """Tokens known once the plans in flight are answered, unless one of them is a stop token."""
        return self.num_tokens + self.num_pending
