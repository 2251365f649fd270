"""Every live sequence of a group and the two pools they take from. The one place where a sequence changes its place.

Live: in `by_request`, until everything it held is free. Resident: holds pages or a promise of them, hence a seat:
RUNNING, PARKING or RESTORING. Running: a resident that may be planned.
"""

from bisect import insort
from collections.abc import Callable

from kv import ArenaSlots, PagePool
from scheduler.engine.config import EngineConfig
from scheduler.engine.sequence import Sequence, State


def _by_id(seq: Sequence) -> int:
    return seq.seq_id


class Roster:
    """`running` ascends by seq_id: the oldest is served first. `residents` is keyed by seq_id."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pool = PagePool(config.num_pages)
        self.arena = ArenaSlots(config.arena_pages)
        self.by_request: dict[str, Sequence] = {}
        self.residents: dict[int, Sequence] = {}
        self.running: list[Sequence] = []

    @property
    def has_seat(self) -> bool:
        return len(self.residents) < self.config.max_running

    @property
    def num_leaving(self) -> int:
        """Pages of ended sequences that plans in flight still use: free soon, without anybody's doing."""
        return self.pool.num_owned - sum(seq.table.num_pages for seq in self.residents.values())

    def enter(self, seq: Sequence) -> None:
        """A new sequence takes a seat."""
        self.by_request[seq.request_id] = seq
        self.place(seq, State.RUNNING)

    def place(self, seq: Sequence, state: State) -> None:
        """Move a live sequence to `state` and keep the lists true."""
        if seq.state is State.RUNNING and seq.seq_id in self.residents:
            self.running.remove(seq)
        seq.state = state
        if state in (State.PARKED, State.ENDED):
            self.residents.pop(seq.seq_id, None)
            return
        self.residents[seq.seq_id] = seq
        if state is State.RUNNING:
            insort(self.running, seq, key=_by_id)

    def release(self, seq: Sequence) -> None:
        """Give back everything an ended sequence owns; it is no longer live."""
        assert seq.state is State.ENDED and seq.num_flights == 0
        seq.table.release(self.pool)
        self.arena.free(seq.arena_ids)
        seq.arena_ids = ()
        del self.by_request[seq.request_id]

    def newest(self, test: Callable[[Sequence], bool]) -> Sequence | None:
        """The running sequence that came last among those that pass the test."""
        return next((seq for seq in reversed(self.running) if test(seq)), None)

    def check_integrity(self) -> None:
        """Every page and every arena slot has one owner or is free; lists and states agree. Raises `KVCorruption`."""
        live = list(self.by_request.values())
        self.pool.check_integrity(seq.table.page_ids for seq in live)
        self.arena.check_integrity(seq.arena_ids for seq in live)
        seated = (State.RUNNING, State.PARKING, State.RESTORING)
        assert {seq.seq_id for seq in live if seq.state in seated} == set(self.residents)
        assert [seq.seq_id for seq in self.running] == sorted(seq.seq_id for seq in live if seq.state is State.RUNNING)
        for seq in live:
            assert 0 <= seq.num_pending <= seq.num_flights or seq.state is State.ENDED
            assert seq.num_scheduled <= seq.num_expected <= seq.limit
            assert seq.num_scheduled <= seq.table.num_slots or seq.state in (State.PARKED, State.ENDED)
            assert seq.table.num_pages <= seq.max_pages
            assert seq.state is not State.PARKED or seq.table.num_pages == 0
            assert seq.state is not State.RUNNING or seq.arena_ids == ()
