"""The numbers of the admission policy. Why each has its default is told in docs/decisions/001-admission-policy.md."""

from dataclasses import dataclass, fields

# 2**33 - 1 exceeds the widest gap between two int32 priorities, so no boost beyond it can change an order.
_MAX_AGE_STEPS = 33


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """Units are in the names. Raises `ValueError` for a number that would stop all progress.

    `promote_every`: parks that lift a request by one tier. `max_passes`: how often one that does not fit is passed.
    `runway_tokens`: how far every resident and the candidate must be able to grow before anything is placed; more
    than the engine's lookahead, or what comes back is parked again at once. `margin_pages`: on top of that, for each.
    `age_step_s`: the k-th such step of waiting lifts a request by 2**(k-1) tiers in the order of waiting.
    `park_retry_s`: after a failed park, the time until the same request may be chosen again.
    `deferred_backoff_s`: after the engine found no room, the time until the group is tried again without news of it.
    `drain_window_s`: the stretch over which the queue's drain rate is measured for `QueueFull.retry_after_s`.
    """

    promote_every: int = 3
    max_passes: int = 8
    runway_tokens: int = 32
    margin_pages: int = 1
    age_step_s: float = 30.0
    max_queued_requests: int = 4096
    max_queued_tokens: int = 4_194_304
    park_retry_s: float = 1.0
    deferred_backoff_s: float = 0.05
    drain_window_s: float = 30.0
    max_retry_after_s: int = 60

    def __post_init__(self) -> None:
        may_be_zero = {"margin_pages", "max_passes", "runway_tokens"}
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0 or (value == 0 and field.name not in may_be_zero):
                bound = "0 or more" if field.name in may_be_zero else "more than 0"
                raise ValueError(f"{field.name} is {value}; it must be {bound}")

    def promotion(self, parks: int) -> int:
        """Tiers earned by `parks` parks."""
        return parks // self.promote_every

    def ageing(self, waited_s: float) -> int:
        """Tiers earned by `waited_s` seconds of waiting: 0, 1, 3, 7, 15, ... at each further step.

        Doubling bounds the wait for every gap between int32 priorities by 33 steps, and a gap of g by
        1 + log2(g + 1) steps; one tier a step would let a client's priority of a million starve all others.
        """
        steps = int(max(0.0, waited_s) / self.age_step_s)
        return (1 << min(steps, _MAX_AGE_STEPS)) - 1
