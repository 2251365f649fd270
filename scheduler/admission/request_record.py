"""One live request as admission knows it: where it is, what it holds, how long it has waited."""

from dataclasses import dataclass
from enum import StrEnum

from scheduler.admission.policy import AdmissionPolicy
from scheduler.messages import Submission


class RequestState(StrEnum):
    """QUEUED waits in the queue and no engine knows it; the others belong to one group.

    QUEUED -> RESIDENT -> PARKING -> PARKED -> RESTORING -> RESIDENT. A request that ends is forgotten.
    """

    QUEUED = "queued"
    RESIDENT = "resident"
    PARKING = "parking"
    PARKED = "parked"
    RESTORING = "restoring"


@dataclass(slots=True, kw_only=True, eq=False)
class RequestRecord:
    """`seq` is the order of arrival and never changes. `since` is the start of the wait as if all of it were one
    stretch that ends now (or at `placed_at`, while the request is in its place): time spent running is left out.

    `placed_by` is the number of the Admit or Restore that placed it; `left_by` that of the first Park or Cancel since.
    `held_pages` and `hold_pages` are the engine's last word: pages held, and pages its known tokens need.
    `parked_pages` lie in the arena.
    """

    submission: Submission
    seq: int
    since: float
    num_tokens: int
    state: RequestState = RequestState.QUEUED
    group_id: str | None = None
    cancelling: bool = False
    parks: int = 0
    passes: int = 0
    reserved_group_id: str | None = None
    placed_at: float | None = None
    placed_by: int = 0
    left_by: int = 0
    held_pages: int = 0
    hold_pages: int = 0
    parked_pages: int = 0

    @property
    def request_id(self) -> str:
        return self.submission.request_id

    @property
    def stays(self) -> bool:
        """It is in its group's seats, or on the way in, and nothing has told it to leave."""
        return self.state in (RequestState.RESIDENT, RequestState.RESTORING) and not self.cancelling

    def effective_priority(self, policy: AdmissionPolicy) -> int:
        """Its tier among residents: the client's priority and what its parks have earned."""
        return self.submission.priority + policy.promotion(self.parks)

    def waiting_tier(self, policy: AdmissionPolicy, now: float) -> int:
        """Its tier among those who wait: the effective priority and what its age has earned."""
        return self.effective_priority(policy) + policy.ageing(self.waited_s(now))

    def guard_tier(self, policy: AdmissionPolicy) -> int:
        """The tier at which a resident would wait if it were parked now; only a higher priority displaces it.

        So nobody is parked for one who would then have to wait behind him, and what came in by age keeps its rank.
        """
        earned = policy.promotion(self.parks + 1) + policy.ageing(self.waited_s(self.since))
        return self.submission.priority + earned

    def waited_s(self, now: float) -> float:
        """Seconds spent queued, parked or being parked, all stretches together."""
        return (now if self.placed_at is None else self.placed_at) - self.since

    def start_running(self, now: float, number: int) -> None:
        self.placed_at = now
        self.placed_by = number
        self.left_by = 0

    def undo_running(self) -> None:
        """It never ran: its wait goes on as if it had not been placed."""
        self.placed_at = None
        self.placed_by = 0

    def told_to_leave(self, number: int) -> None:
        """By that command; an earlier one that stands counts first."""
        if self.stays:
            self.left_by = number

    def start_waiting(self, now: float) -> None:
        self.since = now - self.waited_s(now)
        self.placed_at = None
        self.passes = 0
