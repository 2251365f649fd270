"""A request inside the engine: its choices, their counts and places, and what they own. Decides nothing.

A `Family` is one request, the unit that enters, parks, comes back and ends; most have one choice. A `Sequence` is one
choice of it, the unit that is computed:

    num_scheduled <= num_expected = num_tokens + num_pending <= limit

`num_tokens` are known (prompt, and output that has been answered), `num_pending` are sampled by plans in flight, and
`num_scheduled` positions are computed or will be once the plans in flight have run. The difference is what is missing.

Choices share the full pages of their prompt but for its last position, which each computes to draw its first token.
The first living choice computes them; then the family owns them, and every choice's table begins with them, borrowed.
"""

from dataclasses import dataclass, field
from enum import Enum

from kv import PageTable
from scheduler.messages import FinishReason, ParkMode, ParkReason, Submission
from scheduler.sampling import SamplingParams


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
    """`limit`: the number of tokens at which it ends. `max_pages`: the most it can ever hold, `num_shared_pages` of
    them its family's. `num_flights`: plans in flight that name it; what it owns is kept until there are none.

    `is_on_ranks`: the ranks know its tokens; `is_current`: and its page table. Positions before `prompt_end` count as
    prompt tokens when they are computed first, those before `replay_end` have been computed once and dropped.
    """

    seq_id: int
    choice: int
    family: "Family"
    sampling: SamplingParams
    limit: int
    max_pages: int
    num_shared_pages: int
    table: PageTable
    num_tokens: int
    stop_ids: frozenset[int]
    prompt_end: int
    replay_end: int = 0
    num_pending: int = 0
    num_scheduled: int = 0
    num_flights: int = 0
    is_on_ranks: bool = False
    is_current: bool = False
    arena_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None

    @property
    def num_expected(self) -> int:
        """Tokens known once the plans in flight are answered, unless one of them is a stop token."""
        return self.num_tokens + self.num_pending


@dataclass(slots=True, eq=False, kw_only=True)
class Family:
    """`living` choices ascend by number; `leaving` have ended, and what they own waits for plans or a copy.

    `num_ended_tokens`: output of choices that have ended.
    `shared_ids` and `shared_arena_ids` are what the shared prompt holds; empty until it is computed. `is_copying`: a
    copy of its pages is under way on the ranks, so everything it owns stays where it is.
    """

    submission: Submission
    num_shared_pages: int
    num_shared_tokens: int
    living: list[Sequence] = field(default_factory=list)
    leaving: list[Sequence] = field(default_factory=list)
    num_ended_tokens: int = 0
    shared_ids: tuple[int, ...] = ()
    shared_arena_ids: tuple[int, ...] = ()
    state: State = State.RUNNING
    wish: Wish | None = None
    is_copying: bool = False
    park_reason: ParkReason = ParkReason.PRESSURE
    park_mode: ParkMode = ParkMode.COPY
    parks: int = 0
    recomputes: int = 0
    parked_s: float = 0.0
    parked_at: float | None = None
    restore_failures: int = 0
    restore_failed_at: float = 0.0
    finish: FinishReason | None = None
    error: str | None = None
    request_id: str = field(init=False)
    gateway_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = self.submission.request_id
        self.gateway_id = self.submission.gateway_id

    @property
    def num_pages(self) -> int:
        """Pages that the family and its living choices hold, shared ones once."""
        return len(self.shared_ids) + sum(seq.table.num_own for seq in self.living)

    @property
    def page_ids(self) -> tuple[int, ...]:
        """Those pages: the shared ones, then each choice's own."""
        return (*self.shared_ids, *(page for seq in self.living for page in seq.table.own_ids))

    @property
    def arena_ids(self) -> tuple[int, ...]:
        """The slots of those pages, in the same order."""
        return (*self.shared_arena_ids, *(slot for seq in self.living for slot in seq.arena_ids))

    @property
    def num_tokens(self) -> int:
        """The prompt, once, and the known output of all choices, ended ones too: it never falls."""
        num_prompt = len(self.submission.prompt_tokens)
        return num_prompt + self.num_ended_tokens + sum(seq.num_tokens - num_prompt for seq in self.living)

    @property
    def is_in_flight(self) -> bool:
        """Whether a plan in flight computes something of it."""
        return any(seq.num_flights for seq in self.living) or any(seq.num_flights for seq in self.leaving)
