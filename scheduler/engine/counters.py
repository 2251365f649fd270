"""What an engine has done since it began, in plain numbers that it adds to while it works."""

from collections import deque

from scheduler.plan import CopyOutcome

# Steps are asked for a few times a second; this many are enough for tens of seconds of the fastest.
MAX_STEP_SECONDS = 4096


class EngineCounters:
    """`prompt_tokens`: prompt positions computed for the first time, a shared prompt's once. `recomputed_tokens`:
    positions computed again because their pages were dropped. `generated_tokens`: tokens handed out.

    `copies` landed well on every rank, out or in; `failed_copies` and `corrupt_copies` did not.
    """

    __slots__ = (
        "_step_seconds",
        "copies",
        "corrupt_copies",
        "failed_copies",
        "generated_tokens",
        "prompt_tokens",
        "recomputed_tokens",
        "steps",
    )

    def __init__(self) -> None:
        self.steps = 0
        self.prompt_tokens = 0
        self.recomputed_tokens = 0
        self.generated_tokens = 0
        self.copies = 0
        self.failed_copies = 0
        self.corrupt_copies = 0
        self._step_seconds: deque[float] = deque(maxlen=MAX_STEP_SECONDS)

    def note_step(self, step_s: float) -> None:
        """A step was answered; its longest rank took `step_s`."""
        self.steps += 1
        self._step_seconds.append(step_s)

    def note_copy(self, outcome: CopyOutcome) -> None:
        """A copy has ended on every rank."""
        if outcome is CopyOutcome.DONE:
            self.copies += 1
        elif outcome is CopyOutcome.FAILED:
            self.failed_copies += 1
        else:
            self.corrupt_copies += 1

    def take_step_seconds(self) -> list[float]:
        """The times of the steps since the last call, oldest first; only the newest `MAX_STEP_SECONDS` are kept."""
        taken = list(self._step_seconds)
        self._step_seconds.clear()
        return taken
