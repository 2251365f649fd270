"""N ranks as threads of one process, over a collective that is a barrier and a list: the smallest thing that can be
right.

Also hands out pages, so that a test reads as prompts in, tokens and logits out.
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

from scheduler.plan import Chunk, NewSequence, PageGrant, ParkOrder, RestoreOrder, StepPlan
from scheduler.sampling import SamplingParams
from workers.collective.opening import open_collective
from workers.collective.protocol import Collective
from workers.rank import Rank, RankAnswer
from workers.spec import CollectiveSpec, RankSpec

Float32 = npt.NDArray[np.float32]

GREEDY = SamplingParams(temperature=0.0)


class ThreadCollective:
    """Arrays or tensors; sums run in rank order. A lost peer breaks the barrier for all within 30 s."""

    def __init__(self, rank: int, slots: list[Any], barrier: threading.Barrier) -> None:
        self.rank = rank
        self.world_size = len(slots)
        self.num_calls = 0
        self._slots = slots
        self._barrier = barrier

    def all_reduce(self, x: Any) -> None:
        parts = self._share(x)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        x[...] = total

    def all_gather(self, x: Any, out: Any) -> None:
        for rank, part in enumerate(self._share(x)):
            out[rank] = part

    def _share(self, x: Any) -> list[Any]:
        self.num_calls += 1
        self._slots[self.rank] = x.clone() if isinstance(x, torch.Tensor) else x.copy()
        self._barrier.wait(30)
        parts = list(self._slots)
        self._barrier.wait(30)
        return parts

    def abort(self) -> None:
        self._barrier.abort()

    def close(self) -> None:
        self.abort()


def thread_collectives(world_size: int) -> list[ThreadCollective]:
    slots: list[Any] = [None] * world_size
    barrier = threading.Barrier(world_size)
    return [ThreadCollective(rank, slots, barrier) for rank in range(world_size)]


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


class RankGroup:
    """The ranks of `spec`, which agree on every answer. `logits` are those of the last step, over the whole
    vocabulary.
    """

    def __init__(self, spec: RankSpec) -> None:
        self.spec = spec
        self._threads = ThreadPoolExecutor(spec.world_size)
        specs = [replace(spec, rank=rank) for rank in range(spec.world_size)]
        self.collectives = self._collectives(specs)
        self.ranks: list[Rank] = list(self._threads.map(Rank, specs, self.collectives))
        self._shares: list[Float32] = [np.empty((0, 0), np.float32)] * spec.world_size
        for number, rank in enumerate(self.ranks):
            self._watch(number, rank)
        self.step = 0
        self.free_pages = list(range(spec.num_pages - 1, -1, -1))
        self.pages: dict[int, list[int]] = {}
        self._lengths: dict[int, int] = {}

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
        assert len({(answer.step, answer.tokens, answer.failed_copies) for answer in answers}) == 1
        return answers[0]

    def start(self, seq_id: int, tokens: Sequence[int], sampling: SamplingParams = GREEDY) -> NewSequence:
        self._lengths[seq_id] = len(tokens)
        self.pages[seq_id] = []
        return NewSequence(seq_id=seq_id, tokens=tuple(tokens), num_prompt_tokens=len(tokens), sampling=sampling)

    def grant(self, seq_id: int, num_tokens: int) -> list[PageGrant]:
        """Pages for the first `num_tokens` positions, beyond those held."""
        missing = -(-num_tokens // self.spec.page_size) - len(self.pages[seq_id])
        if missing <= 0:
            return []
        granted = [self.free_pages.pop() for _ in range(missing)]
        self.pages[seq_id] += granted
        return [PageGrant(seq_id=seq_id, page_ids=tuple(granted))]

    def finish(self, seq_ids: Sequence[int]) -> None:
        """End sequences; their pages are the first to be handed out again."""
        self.execute(finished=tuple(seq_ids))
        for seq_id in seq_ids:
            self.free_pages += self.pages.pop(seq_id)

    def move_through_arena(self, seq_id: int) -> None:
        """Park a sequence, overwrite its pages with another's, and restore it into other pages."""
        held = self.pages[seq_id]
        slots, into = tuple(range(len(held))), [self.free_pages.pop(0) for _ in held]
        self.execute(parks=(ParkOrder(seq_id=seq_id, page_ids=tuple(held), arena_ids=slots),))
        self.free_pages += held
        self.prefill(-1, [7] * (self.spec.page_size * len(held)))
        assert sorted(self.pages[-1]) == sorted(held)
        self.finish([-1])
        self.execute(restores=(RestoreOrder(seq_id=seq_id, page_ids=tuple(into), arena_ids=slots),))
        self.pages[seq_id] = into

    def prefill(
        self, seq_id: int, tokens: Sequence[int], sampling: SamplingParams = GREEDY, *, cuts: Sequence[int] = ()
    ) -> int:
        """Start a sequence alone, its prompt in chunks that end at `cuts`, and give its first token."""
        new: tuple[NewSequence, ...] = (self.start(seq_id, tokens, sampling),)
        grants = tuple(self.grant(seq_id, len(tokens)))
        ends = [*cuts, len(tokens)]
        for start, end in zip([0, *cuts], ends, strict=True):
            chunk = Chunk(seq_id=seq_id, start=start, num_tokens=end - start, sample=end == len(tokens))
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
