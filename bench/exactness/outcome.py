"""What came of exactness runs: how many streams were compared, which differ, and what had been done to them."""

from collections import Counter
from dataclasses import dataclass, field

from bench.local_group import Stream
from scheduler.messages import EngineEvent, FinishReason, Parked, ParkFailed, Restored

# What is counted, in the order in which it is told.
DEEDS = (
    *("requests", "families", "cancelled", "parked by copy", "parked by recompute", "parked by order"),
    *("restored by copy", "restored by recompute", "parks failed"),
    *("copies failed", "copies spoilt", "wrong checksums found"),
)


@dataclass(slots=True)
class Outcome:
    """`differing` names each stream that is not what it is alone, and where it differs first."""

    num_streams: int = 0
    num_tokens: int = 0
    deeds: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        self.num_streams += other.num_streams
        self.num_tokens += other.num_tokens
        self.deeds += other.deeds
        self.differing += other.differing

    def hear(self, event: EngineEvent, now: float) -> None:  # noqa: ARG002 - what a group calls it with
        """Count what an engine says of copies."""
        match event:
            case Parked():
                self.deeds[f"parked by {event.mode}"] += 1
                self.deeds["parked by order"] += event.reason == "explicit"
            case Restored():
                self.deeds[f"restored by {event.mode}"] += 1
            case ParkFailed():
                self.deeds["parks failed"] += 1
            case _:
                pass

    def compare(self, name: str, stream: Stream, choice: int, alone: list[int]) -> None:
        """One choice against its solo run; of one that was cancelled, what had come."""
        said = stream.choices[choice]
        self.num_streams += 1
        self.num_tokens += len(said.tokens)
        if said.finish is FinishReason.CANCELLED:
            alone = alone[: len(said.tokens)]
        if said.finish not in (FinishReason.LENGTH, FinishReason.CANCELLED):
            self.differing.append(f"{name}: ended with {said.finish} after {len(said.tokens)} tokens: {said.error}")
        elif said.tokens != alone:
            self.differing.append(f"{name}: differs at token {first_difference(said.tokens, alone)} of {len(alone)}")


def first_difference(one: list[int], other: list[int]) -> int:
    """The index of the first token that differs; where one ends early, its length."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))
