"""Every live request of a group and the two pools they take from. The one place where a request changes its place.

Live: in `by_request`, until everything it held is free. Resident: its choices hold pages or a promise of them, hence a
seat each: RUNNING, PARKING or RESTORING. Running: a choice that may be planned. Expecting: a running family whose first
choice computes the shared prompt that the others wait for; they have their seats and their claims already.
"""

from bisect import insort
from collections.abc import Callable, Iterable

from kv import ArenaSlots, PagePool
from scheduler.engine.config import EngineConfig
from scheduler.engine.sequence import Family, Sequence, State


def _by_id(seq: Sequence) -> int:
    return seq.seq_id


class Roster:
    """`running` ascends by seq_id: the oldest is served first. `num_seated` choices have a seat."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pool = PagePool(config.num_pages)
        self.arena = ArenaSlots(config.arena_pages)
        self.by_request: dict[str, Family] = {}
        self.residents: dict[str, Family] = {}
        self.running: list[Sequence] = []
        self.expecting: list[Family] = []
        self.num_seated = 0
        self._written: set[int] = set()
        self._unwanted: set[int] = set()

    @property
    def num_leaving(self) -> int:
        """Pages of ended choices that plans in flight still use: free soon, without anybody's doing."""
        return self.pool.num_owned - sum(family.num_pages for family in self.residents.values())

    # ---- places

    def enter(self, family: Family) -> None:
        """A new request takes its seats."""
        self.by_request[family.request_id] = family
        self.place(family, State.RUNNING)

    def place(self, family: Family, state: State) -> None:
        """Move a live family to `state` and keep the lists true."""
        is_seated = family.request_id in self.residents
        if is_seated and family.state is State.RUNNING:
            self._halt(family)
        family.state = state
        if state in (State.PARKED, State.ENDED):
            if is_seated:
                del self.residents[family.request_id]
                self.num_seated -= len(family.living)
            return
        if not is_seated:
            self.residents[family.request_id] = family
            self.num_seated += len(family.living)
        if state is State.RUNNING:
            self._run(family)

    def _run(self, family: Family) -> None:
        if family.num_shared_pages and not family.shared_ids:
            insort(self.running, family.living[0], key=_by_id)
            self.expecting.append(family)
            return
        for seq in family.living:
            insort(self.running, seq, key=_by_id)

    def _halt(self, family: Family) -> None:
        if family in self.expecting:
            self.expecting.remove(family)
        for seq in family.living:
            if seq in self.running:
                self.running.remove(seq)

    def lend(self, family: Family) -> None:
        """The first choice has the shared prompt computed: it becomes the family's, and the others begin with it."""
        self.expecting.remove(family)
        first, *others = family.living
        family.shared_ids = first.table.cede(family.num_shared_pages)
        for seq in others:
            seq.table.borrow(family.shared_ids)
            seq.num_scheduled = family.num_shared_tokens
            insort(self.running, seq, key=_by_id)

    def leave(self, seq: Sequence) -> None:
        """A choice has ended: its seat is free, what it owns not yet."""
        family = seq.family
        family.living.remove(seq)
        family.leaving.append(seq)
        family.num_ended_tokens += seq.num_tokens - len(family.submission.prompt_tokens)
        if family.request_id in self.residents:
            self.num_seated -= 1
            if family.state is State.RUNNING and seq in self.running:
                self.running.remove(seq)

    # ---- ways back

    def release(self, seq: Sequence) -> None:
        """Give back everything an ended choice owns."""
        assert seq.finish is not None and seq.num_flights == 0 and not seq.family.is_copying
        seq.table.release(self.pool)
        self.free_slots(seq.arena_ids)
        seq.arena_ids = ()
        seq.family.leaving.remove(seq)

    def dissolve(self, family: Family) -> None:
        """Every choice has given back what it owned: so does the family, and is no longer live."""
        assert family.state is State.ENDED and not family.living and not family.leaving
        self.pool.free(family.shared_ids)
        self.free_slots(family.shared_arena_ids)
        family.shared_ids = family.shared_arena_ids = ()
        del self.by_request[family.request_id]

    def vacate(self, family: Family) -> None:
        """Give back the pages of the living choices and the shared ones. Slots stay."""
        assert not family.is_in_flight and not family.is_copying
        # From the end, so that they are taken in order when the family comes back: runs of pages copy faster.
        for seq in reversed(family.living):
            seq.table.release(self.pool)
            seq.is_current = False
        self.pool.free(family.shared_ids)
        family.shared_ids = ()

    def write_slots(self, arena_ids: Iterable[int]) -> None:
        """The ranks are told to write into these slots: they must be told, too, when nobody wants them any more."""
        self._written.update(arena_ids)

    def free_slots(self, arena_ids: tuple[int, ...]) -> None:
        """Give slots back; the next plan tells the ranks about those that they wrote into."""
        self.arena.free(arena_ids)
        unwanted = self._written.intersection(arena_ids)
        self._unwanted |= unwanted
        self._written -= unwanted

    @property
    def has_unwanted(self) -> bool:
        return bool(self._unwanted)

    def take_unwanted(self) -> tuple[int, ...]:
        """Slots for the next plan's `freed_arena_ids`."""
        if not self._unwanted:
            return ()
        slots, self._unwanted = tuple(sorted(self._unwanted)), set()
        return slots

    # ---- questions

    def newest(self, test: Callable[[Family], bool]) -> Family | None:
        """The running family that came last among those that pass the test."""
        return next((seq.family for seq in reversed(self.running) if test(seq.family)), None)

    def check_integrity(self) -> None:
        """Every page and every arena slot has one owner or is free; lists and states agree. Raises `KVCorruption`."""
        live = list(self.by_request.values())
        choices = [seq for family in live for seq in (*family.living, *family.leaving)]
        self.pool.check_integrity([*(one.shared_ids for one in live), *(seq.table.own_ids for seq in choices)])
        self.arena.check_integrity([*(one.shared_arena_ids for one in live), *(seq.arena_ids for seq in choices)])
        seated = (State.RUNNING, State.PARKING, State.RESTORING)
        assert {one.request_id for one in live if one.state in seated} == set(self.residents)
        assert self.num_seated == sum(len(one.living) for one in self.residents.values()) <= self.config.max_running
        assert self.running == sorted((seq for one in live for seq in _runnable(one)), key=_by_id)
        assert {id(one) for one in self.expecting} == {id(one) for one in live if _is_expecting(one)}
        for family in live:
            assert (family.state is State.ENDED) == (not family.living)
            assert family.num_pages == 0 or family.state is not State.PARKED
            assert family.arena_ids == () or family.state is not State.RUNNING
            for seq in family.living:
                _check_choice(family, seq)


def _is_expecting(family: Family) -> bool:
    return family.state is State.RUNNING and family.num_shared_pages > 0 and not family.shared_ids


def _runnable(family: Family) -> list[Sequence]:
    if family.state is not State.RUNNING:
        return []
    return family.living[:1] if _is_expecting(family) else family.living


def _check_choice(family: Family, seq: Sequence) -> None:
    assert seq.finish is None
    assert 0 <= seq.num_pending <= seq.num_flights
    assert seq.num_scheduled <= seq.num_expected <= seq.limit
    assert seq.num_scheduled <= seq.table.num_slots or family.state is State.PARKED
    assert seq.table.num_pages <= seq.max_pages
    assert seq.table.page_ids[: seq.table.num_borrowed] == family.shared_ids[: seq.table.num_borrowed]
