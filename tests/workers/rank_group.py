"""N ranks as threads of one process, over a collective that is a barrier and a list: the smallest thing that can be
right.

Also hands out pages and slots, so that a test reads as prompts in, tokens and logits out.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from scheduler.plan import (
    Chunk,
    CopyIn,
    CopyOut,
    CopyOutcome,
    NewSequence,
    PageGrant,
    PageReset,
    StepPlan,
)
from scheduler.sampling import SamplingParams
from tests.workers.thread_collective import thread_collectives
from workers.collective.opening import open_collective
from workers.collective.protocol import Collective
from workers.copier import CopyDone
from workers.rank import Rank, RankAnswer
from workers.spec import CollectiveSpec, RankSpec

Float32 = npt.NDArray[np.float32]

GREEDY = SamplingParams(temperature=0.0)


def make_spec(folder: Path, **changes: Any) -> RankSpec:
    spec = RankSpec(
        model_dir=str(folder),
        rank=0,
        world_size=1,
        collective=CollectiveSpec(kind="single"),
        num_pages=128,
        arena_pages=64,
        max_model_len=512,
        max_step_tokens=256,
        max_running=64,
        backend="sdpa",
        dtype="float32",
    )
    return replace(spec, **changes)


def chunks_of(seq_id: int, length: int, cuts: Sequence[int]) -> Iterator[Chunk]:
    """All positions below `length`, in chunks that end at `cuts`; the last one samples."""
    for start, end in zip([0, *cuts], [*cuts, length], strict=True):
        yield Chunk(seq_id=seq_id, start=start, num_tokens=end - start, sample=end == length)


class RankGroup:
    """The ranks of `spec`, which agree on every answer. `logits` are those of the last step, over the whole
    vocabulary.
    """

    def __init__(self, spec: RankSpec) -> None:
        self.spec = spec
        self._threads = ThreadPoolExecutor(spec.world_size)
        specs = [replace(spec, rank=rank) for rank in range(spec.world_size)]
        self.collectives = self._collectives(specs)
        self._ends: dict[int, list[CopyDone]] = {}
        self._ended = threading.Condition()
        self._let_on = threading.Event()
        self._let_on.set()
        self.ranks: list[Rank] = list(
            self._threads.map(lambda one, link: Rank(one, link, self._end_copy), specs, self.collectives)
        )
        self._shares: list[Float32] = [np.empty((0, 0), np.float32)] * spec.world_size
        for number, rank in enumerate(self.ranks):
            self._watch(number, rank)
        self.step = 0
        self.free_pages = list(range(spec.num_pages - 1, -1, -1))
        self.pages: dict[int, list[int]] = {}
        self.free_slots = list(range(spec.arena_pages - 1, -1, -1))
        self.slots: dict[int, list[int]] = {}
        self._num_borrowed: dict[int, int] = {}
        self._lengths: dict[int, int] = {}
        self._next_copy = 0

    @property
    def logits(self) -> Float32:
        return np.concatenate(self._shares, axis=1)

    def _collectives(self, specs: Sequence[RankSpec]) -> list[Collective[Any]]:
        """The barrier's for kind "single"; otherwise the real ones, opened by all ranks at once."""
        if self.spec.collective.kind == "single":
            return list(thread_collectives(len(specs)))
        opened = self._threads.map(lambda s: open_collective(s.collective, s.rank, s.world_size, s.backend), specs)
        return list(opened)

    def _watch(self, number: int, rank: Rank) -> None:
        forward = rank._model.forward

        def watched(batch: Any) -> Any:
            logits = forward(batch)
            self._shares[number] = np.copy(logits.numpy() if isinstance(logits, torch.Tensor) else logits)
            return logits

        rank._model.forward = watched  # type: ignore[method-assign]

    def execute(self, **changes: Any) -> RankAnswer:
        plan = StepPlan(step=self.step, **changes)
        self.step += 1
        answers: list[RankAnswer] = list(self._threads.map(lambda rank: rank.execute(plan), self.ranks))
        assert len({(answer.step, answer.tokens) for answer in answers}) == 1
        return answers[0]

    def start(
        self, seq_id: int, tokens: Sequence[int], sampling: SamplingParams = GREEDY, *, borrowed: Sequence[int] = ()
    ) -> NewSequence:
        """`borrowed` pages, computed in full by another, are its first; they stay the other's."""
        self._lengths[seq_id] = len(tokens)
        self.pages[seq_id] = list(borrowed)
        self._num_borrowed[seq_id] = len(borrowed)
        return NewSequence(
            seq_id=seq_id,
            tokens=tuple(tokens),
            num_prompt_tokens=len(tokens),
            sampling=sampling,
            page_ids=tuple(borrowed),
            num_computed=len(borrowed) * self.spec.page_size,
        )

    def grant(self, seq_id: int, num_tokens: int) -> list[PageGrant]:
        """Pages for the first `num_tokens` positions, beyond those held."""
        missing = -(-num_tokens // self.spec.page_size) - len(self.pages[seq_id])
        if missing <= 0:
            return []
        granted = [self.free_pages.pop() for _ in range(missing)]
        self.pages[seq_id] += granted
        return [PageGrant(seq_id=seq_id, page_ids=tuple(granted))]

    def num_known(self, seq_id: int) -> int:
        """Its tokens, prompt and output."""
        return self._lengths[seq_id]

    def finish(self, seq_ids: Sequence[int]) -> None:
        """End sequences; their pages are the first to be handed out again."""
        self.execute(finished=tuple(seq_ids))
        for seq_id in seq_ids:
            self.free_pages += self.pages.pop(seq_id)[self._num_borrowed.pop(seq_id) :]

    def start_park(self, seq_id: int, **changes: Any) -> int:
        """Order the copy of a sequence's pages to the arena, beside `changes`; the copy's id."""
        self.slots[seq_id] = [self.free_slots.pop() for _ in self.pages[seq_id]]
        out = CopyOut(
            copy_id=self.new_copy_id(), page_ids=tuple(self.pages[seq_id]), arena_ids=tuple(self.slots[seq_id])
        )
        self.execute(copies_out=(out,), **changes)
        return out.copy_id

    def finish_park(self, seq_id: int, copy_id: int) -> None:
        """Wait for the copy; the pages are the first to be handed out again."""
        assert self.land(copy_id) == [CopyOutcome.DONE] * len(self.ranks)
        self.free_pages += self.pages.pop(seq_id)

    def start_restore(self, seq_id: int, **changes: Any) -> int:
        """Order the copy back, into the pages that would be handed out last; the copy's id."""
        self.pages[seq_id] = [self.free_pages.pop(0) for _ in self.slots[seq_id]]
        back = CopyIn(
            copy_id=self.new_copy_id(), arena_ids=tuple(self.slots[seq_id]), page_ids=tuple(self.pages[seq_id])
        )
        self.execute(copies_in=(back,), **changes)
        return back.copy_id

    def finish_restore(self, seq_id: int, copy_id: int) -> None:
        """Wait for the copy; the sequence can be decoded again."""
        assert self.land(copy_id) == [CopyOutcome.DONE] * len(self.ranks)
        self.execute(freed_arena_ids=tuple(self.slots[seq_id]), resets=(self.reset(seq_id),))
        self.free_slots += self.slots.pop(seq_id)

    def reset(self, seq_id: int) -> PageReset:
        """To the pages it has, with all but the last token computed."""
        return PageReset(seq_id=seq_id, page_ids=tuple(self.pages[seq_id]), num_computed=self._lengths[seq_id] - 1)

    def drop(self, seq_id: int) -> PageReset:
        """Of all its pages, which are the first to be handed out again."""
        self.free_pages += self.pages[seq_id]
        self.pages[seq_id] = []
        return PageReset(seq_id=seq_id, page_ids=(), num_computed=0)

    def new_copy_id(self) -> int:
        self._next_copy += 1
        return self._next_copy

    def land(self, copy_id: int) -> list[CopyOutcome]:
        """Wait until every rank has ended a copy; how, in no order."""
        with self._ended:
            assert self._ended.wait_for(lambda: len(self._ends.get(copy_id, [])) == len(self.ranks), 30)
            return [done.outcome for done in self._ends[copy_id]]

    @contextmanager
    def copies_held(self) -> Iterator[None]:
        """Copies ordered within stay in flight on every rank until the block ends: their thread waits for it."""
        self._let_on.clear()
        first = CopyOut(copy_id=self.new_copy_id(), page_ids=(self.free_pages[0],), arena_ids=(self.free_slots[0],))
        self.execute(copies_out=(first,))
        self.land(first.copy_id)  # and there its thread stays, on every rank
        try:
            yield
        finally:
            self._let_on.set()

    def _end_copy(self, done: CopyDone) -> None:
        with self._ended:
            self._ends.setdefault(done.copy_id, []).append(done)
            self._ended.notify_all()
        assert self._let_on.wait(30)

    def move_through_arena(self, seq_id: int) -> None:
        """Park a sequence, overwrite its pages with another's, and restore it into other pages."""
        held = list(self.pages[seq_id])
        self.finish_park(seq_id, self.start_park(seq_id))
        self.prefill(-1, [7] * (self.spec.page_size * len(held)))
        assert sorted(self.pages[-1]) == sorted(held)
        self.finish([-1])
        self.finish_restore(seq_id, self.start_restore(seq_id))

    def recompute(self, seq_id: int, cuts: Sequence[int] = ()) -> int:
        """Drop a sequence's pages and compute its tokens again, in chunks that end at `cuts`; the token it draws."""
        resets: tuple[PageReset, ...] = (self.drop(seq_id),)
        grants = tuple(self.grant(seq_id, self._lengths[seq_id]))
        for chunk in chunks_of(seq_id, self._lengths[seq_id], cuts):
            answer = self.execute(resets=resets, grants=grants, chunks=(chunk,))
            resets, grants = (), ()
        self.note_drawn([seq_id])
        return answer.tokens[0][1]

    def prefill(
        self, seq_id: int, tokens: Sequence[int], sampling: SamplingParams = GREEDY, *, cuts: Sequence[int] = ()
    ) -> int:
        """Start a sequence alone, its prompt in chunks that end at `cuts`, and give its first token."""
        new: tuple[NewSequence, ...] = (self.start(seq_id, tokens, sampling),)
        grants = tuple(self.grant(seq_id, len(tokens)))
        for chunk in chunks_of(seq_id, len(tokens), cuts):
            answer = self.execute(new=new, grants=grants, chunks=(chunk,))
            new, grants = (), ()
        self.note_drawn([seq_id])
        return answer.tokens[0][1]

    def decode(self, seq_ids: Sequence[int]) -> list[int]:
        """One token more for each, in one step."""
        grants = [grant for seq_id in seq_ids for grant in self.grant(seq_id, self._lengths[seq_id])]
        chunks = [
            Chunk(seq_id=seq_id, start=self._lengths[seq_id] - 1, num_tokens=1, sample=True) for seq_id in seq_ids
        ]
        answer = self.execute(grants=tuple(grants), chunks=tuple(chunks))
        self.note_drawn(seq_ids)
        return [token for _, token in answer.tokens]

    def note_drawn(self, seq_ids: Sequence[int]) -> None:
        """Each of them is one token longer."""
        for seq_id in seq_ids:
            self._lengths[seq_id] += 1

    def generate(self, seq_id: int, tokens: Sequence[int], count: int, sampling: SamplingParams = GREEDY) -> list[int]:
        """`count` tokens of a sequence that runs alone."""
        made = [self.prefill(seq_id, tokens, sampling)]
        while len(made) < count:
            made += self.decode([seq_id])
        return made

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()
        self._threads.shutdown()


@contextmanager
def running(spec: RankSpec) -> Iterator[RankGroup]:
    group = RankGroup(spec)
    try:
        yield group
    finally:
        group.close()
