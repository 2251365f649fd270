"""One live request as admission knows it: where it is, what it holds, how long it has waited."""

from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.admission.policy import AdmissionPolicy
from scheduler.messages import Submission


class RequestState(StrEnum):
    """QUEUED waits and no engine knows it; the others belong to one group.

    QUEUED -> RESIDENT -> PARKING -> PARKED -> RESTORING -> RESIDENT. An explicit park leads from RESTORING to PARKING.
    PARKING ends only by the engine's answer to the Park. A request that ends is forgotten.
    """

    QUEUED = "queued"
    RESIDENT = "resident"
    PARKING = "parking"
    PARKED = "parked"
    RESTORING = "restoring"


@dataclass(slots=True, kw_only=True, eq=False)
class RequestRecord:
    """`seq` is the order of arrival and never changes. `since` is the start of the wait as if all of it were one
    stretch that ends now (or at `placed_at`, while the request is in its place): time spent running or held is left
    out. `frozen_at`: it waits and is held since then, and does not age.

    `placed_by` is the number of the Admit or Restore that placed it; `left_by` that of the first Park or Cancel since.
    `held_pages` and `hold_pages` are the engine's last word: pages held, and pages its known tokens need, both 0 while
    it is not resident; `known_pages` keeps the latter, 0 before an engine has told. `seats` are its living choices.
    `num_tokens`: prompt and output of all choices, ended ones too.
    `parked_pages` lie in the arena. `is_fresh`: no engine has ever parked it.
    `parks` are all, `forced_parks` those that nobody ordered for it: only these promote.
    """

    submission: Submission
    seq: int
    slot: int
    since: float
    num_tokens: int
    born_at: float = 0.0
    state: RequestState = RequestState.QUEUED
    group_id: str | None = None
    held: bool = False
    frozen_at: float | None = None
    hold_failure: str | None = None
    cancelling: bool = False
    is_fresh: bool = True
    parks: int = 0
    forced_parks: int = 0
    recomputes: int = 0
    passes: int = 0
    reserved_group_id: str | None = None
    placed_at: float | None = None
    placed_by: int = 0
    left_by: int = 0
    seats: int = 1
    held_pages: int = 0
    hold_pages: int = 0
    known_pages: int = 0
    parked_pages: int = 0
    parked_at: float | None = None
    parked_before_s: float = 0.0

    def __post_init__(self) -> None:
        self.seats = self.submission.n

    @property
    def request_id(self) -> str:
        return self.submission.request_id

    @property
    def priority(self) -> int:
        """The client's, as it is now."""
        return self.submission.priority

    @property
    def stays(self) -> bool:
        """It is in its group's seats, or on the way in, and nothing has told it to leave."""
        return self.state in (RequestState.RESIDENT, RequestState.RESTORING) and not self.cancelling

    def reprioritise(self, priority: int) -> None:
        self.submission = replace(self.submission, priority=priority)

    # ---- tiers

    def effective_priority(self, policy: AdmissionPolicy) -> int:
        """Its tier among residents: the client's priority and what its forced parks have earned."""
        return self.submission.priority + policy.promotion(self.forced_parks)

    def waiting_tier(self, policy: AdmissionPolicy, now: float) -> int:
        """Its tier among those who wait: the effective priority and what its age has earned."""
        return self.effective_priority(policy) + policy.ageing(self.waited_s(now))

    def guard_tier(self, policy: AdmissionPolicy) -> int:
        """The tier at which a resident would wait if it were displaced now; only a higher priority displaces it.

        So nobody is parked for one who would then have to wait behind him, and what came in by age keeps its rank.
        """
        earned = policy.promotion(self.forced_parks + 1) + policy.ageing(self.waited_s(self.since))
        return self.submission.priority + earned

    # ---- waiting

    def waited_s(self, now: float) -> float:
        """Seconds spent queued, parked or being parked, all stretches together, without the time held."""
        if self.placed_at is not None:
            return self.placed_at - self.since
        return (now if self.frozen_at is None else self.frozen_at) - self.since

    def parked_s(self, now: float) -> float:
        """Seconds spent parked, all stretches together, the time held included."""
        return self.parked_before_s + (0.0 if self.parked_at is None else now - self.parked_at)

    def start_running(self, now: float, number: int) -> None:
        self.placed_at = now
        self.placed_by = number
        self.left_by = 0

    def undo_running(self, now: float) -> None:
        """It never ran: its wait goes on as if it had not been placed."""
        self.placed_at = None
        self.placed_by = 0
        self.frozen_at = now if self.held else None

    def told_to_leave(self, number: int) -> None:
        """By that command; an earlier one that stands counts first."""
        if self.stays:
            self.left_by = number

    def start_waiting(self, now: float) -> None:
        self.since = now - self.waited_s(now)
        self.placed_at = None
        self.passes = 0
        self.parked_at = now
        if self.held:
            self.frozen_at = now

    def end_parking(self, now: float) -> None:
        """It is back in the pool."""
        self.parked_before_s = self.parked_s(now)
        self.parked_at = None
        self.parked_pages = 0
        self.passes = 0

    # ---- held

    def hold(self, now: float) -> None:
        """It leaves the line it is in, if it is in one; one in its place freezes when it starts to wait."""
        self.held = True
        self.hold_failure = None
        self.reserved_group_id = None
        if self.placed_at is None and self.frozen_at is None:
            self.frozen_at = now

    def unhold(self, now: float) -> None:
        """Its wait goes on where it stopped."""
        self.held = False
        if self.frozen_at is not None:
            self.since += now - self.frozen_at
            self.frozen_at = None
