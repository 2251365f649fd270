"""The figures of an engine: what its plain counters have gained since they were last read. Pure; names and labels are
those of `ENGINE_INSTRUMENTS`."""

from cluster.readings import Reading
from scheduler.engine.counters import EngineCounters

_TOKENS = {
    "prompt_tokens": "parkade_prompt_tokens",
    "recomputed_tokens": "parkade_recomputed_tokens",
    "generated_tokens": "parkade_generated_tokens",
}
_COPIES = {"copies": "done", "failed_copies": "failed", "corrupt_copies": "corrupt"}


class EngineFigures:
    """Reads `counters` whenever it is asked; the engine only adds to them."""

    def __init__(self, group_id: str, counters: EngineCounters) -> None:
        self._group_id = group_id
        self._counters = counters
        self._seen: dict[str, int] = {}

    def take(self) -> list[Reading]:
        """What is new. Empty of an idle engine."""
        group = self._group_id
        steps = [Reading("parkade_step_seconds", seconds, (group,)) for seconds in self._counters.take_step_seconds()]
        gains = [Reading(name, self._gain(counter), (group,)) for counter, name in _TOKENS.items()]
        gains += [
            Reading("parkade_copies", self._gain(counter), (group, outcome)) for counter, outcome in _COPIES.items()
        ]
        return [*steps, *(reading for reading in gains if reading.value > 0)]

    def _gain(self, counter: str) -> int:
        now: int = getattr(self._counters, counter)
        gain = now - self._seen.get(counter, 0)
        self._seen[counter] = now
        return gain
