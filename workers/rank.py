"""One tensor-parallel rank: it mirrors sequences from plans, runs their rows, samples, and has pages copied out and in.

It decides nothing. Plans are executed strictly in order; a plan that contradicts what the rank knows is refused with
`RankDisagreement`, after which the whole group must stop. Copies run on a thread of their own, beside the plans that
follow the one that started them.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from scheduler.plan import Chunk, StepPlan
from workers.arena.arena import Arena
from workers.arena.budget import BudgetSpec
from workers.arena.sweep import sweep_dead_segments
from workers.collective.protocol import Collective
from workers.copier import Copier, CopyDone
from workers.copies_in_flight import CopiesInFlight
from workers.errors import DoesNotFit, RankDisagreement
from workers.model.config import read_model_config
from workers.model.partition import partition
from workers.model.shard import ModelShard
from workers.ops.backend import check_backend, open_backend
from workers.ops.batch import Batch, Int32, RowSpan
from workers.sampler import Draw, Sampler
from workers.sequences import SequenceMirror, SequenceTable, check_pages
from workers.spec import RankSpec
from workers.weights.loader import Progress, load_shard

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswer:
    """`tokens` holds (seq_id, token) of every chunk with `sample`, in plan order; `step_s` is what the step took here,
    in seconds.
    """

    step: int
    tokens: tuple[tuple[int, int], ...] = ()
    step_s: float = 0.0


def open_arena(spec: RankSpec, page_bytes: int) -> Arena:
    """This rank's arena; what the dead have left of theirs on this node is removed first. Raises as `Arena` does."""
    sweep_dead_segments()
    name = f"{spec.arena_prefix}-{spec.rank}" if spec.arena_prefix else ""
    budget = BudgetSpec(name=spec.node_budget_name, num_bytes=spec.node_budget_bytes)
    return Arena(spec.arena_pages, page_bytes, name, budget)


class Rank:
    """Weights, KV shard, arena and mirrors of one rank. Not thread-safe: one plan at a time."""

    def __init__(
        self,
        spec: RankSpec,
        collective: Collective[Any],
        on_copy: Callable[[CopyDone], None],
        progress: Progress | None = None,
    ) -> None:
        """Load this rank's weights. `on_copy` is called on the copy thread, once for every copy of a plan.

        Raises `ModelError`, `CannotPartition`, `BackendUnavailable`, `DoesNotFit` or `ArenaError`.
        """
        check_backend(spec)
        torch.set_num_threads(spec.num_threads)
        config = read_model_config(spec.model_dir)
        if spec.max_model_len > config.max_positions:
            raise DoesNotFit(f"max_model_len {spec.max_model_len} exceeds the model's {config.max_positions} positions")
        parts = partition(config, spec.world_size)
        part = parts[spec.rank]
        backend = open_backend(spec, config, part)
        weights = load_shard(spec.model_dir, config, part, backend.ops, progress)
        self._spec = spec
        self._collective = collective
        self._attention = backend.attention
        self._model: ModelShard[Any, Any] = ModelShard(
            config,
            part,
            weights,
            backend.ops,
            block=backend.block,
            collective=collective,
            heads=backend.heads,
            max_rows=spec.max_step_tokens,
            max_sampled=min(spec.max_running, spec.max_step_tokens),
        )
        self._sampler: Sampler[Any] = Sampler(parts, spec.rank, backend.ops, collective)
        self._kv = backend.kv
        self._sequences = SequenceTable(spec.max_model_len, spec.page_size, spec.num_pages)
        self._on_copy = on_copy
        self._in_flight = CopiesInFlight(spec.num_pages, spec.arena_pages)
        self._arena = open_arena(spec, backend.kv.page_bytes)
        self._copier = Copier(backend.kv, self._arena, self._end_copy)
        self._next_step = 0
        _log.info("rank %d of %d is loaded: %s, %s", spec.rank, spec.world_size, config.architecture, part)

    @property
    def page_bytes(self) -> int:
        return self._kv.page_bytes

    @property
    def num_sequences(self) -> int:
        return len(self._sequences)

    @property
    def num_copies(self) -> int:
        """Of those that have not ended here."""
        return len(self._in_flight)

    def execute(self, plan: StepPlan) -> RankAnswer:
        """Run one plan, whole. Raises `RankDisagreement`; the rank is of no further use then."""
        started = time.perf_counter()
        if plan.step != self._next_step:
            raise RankDisagreement(f"plan {plan.step} came where plan {self._next_step} was due")
        self._next_step += 1
        for seq_id in plan.finished:
            self._sequences.remove(seq_id)
        self._start_copies(plan)
        self._change_tables(plan)
        tokens = self._compute(plan.chunks) if plan.chunks else ()
        return RankAnswer(step=plan.step, tokens=tokens, step_s=time.perf_counter() - started)

    def close(self) -> None:
        """End the copies, give back the arena and leave the collective. Idempotent."""
        self._copier.close()
        self._arena.close()
        self._collective.close()

    def _start_copies(self, plan: StepPlan) -> None:
        if plan.freed_arena_ids:
            freed = check_pages(plan.freed_arena_ids, self._spec.arena_pages, f"plan {plan.step}")
            self._in_flight.check_slots(freed, f"plan {plan.step} frees what it")
            self._copier.free(freed)
        for out in plan.copies_out:
            pages, slots = self._in_flight.start(out)
            self._copier.copy_out(out.copy_id, pages, slots)
        for back in plan.copies_in:
            pages, slots = self._in_flight.start(back)
            self._copier.copy_in(back.copy_id, slots, pages)

    def _end_copy(self, done: CopyDone) -> None:
        self._in_flight.end(done.copy_id)  # first: once it is told, the engine may use its pages again
        self._on_copy(done)

    def _change_tables(self, plan: StepPlan) -> None:
        for new in plan.new:
            self._sequences.add(new)
            self._in_flight.check_pages(new.page_ids, f"the new sequence {new.seq_id}")
        for reset in plan.resets:
            self._sequences.reset(reset.seq_id, reset.page_ids, reset.num_computed)
            self._in_flight.check_pages(reset.page_ids, f"the reset of sequence {reset.seq_id}")
        for grant in plan.grants:
            self._sequences.grant(grant.seq_id, grant.page_ids)
            self._in_flight.check_pages(grant.page_ids, f"the grant to sequence {grant.seq_id}")

    def _compute(self, chunks: Sequence[Chunk]) -> tuple[tuple[int, int], ...]:
        sequences = [self._sequences.get(chunk.seq_id) for chunk in chunks]
        self._check(chunks, sequences)
        batch = self._batch(chunks, sequences)
        logits = self._model.forward(self._attention.place(batch))
        drawn = [sequence for chunk, sequence in zip(chunks, sequences, strict=True) if chunk.sample]
        draws = [
            Draw(params=sequence.sampling, position=sequence.num_tokens, counts=sequence.counts) for sequence in drawn
        ]
        tokens = self._sampler.sample(logits, draws)
        for chunk, sequence in zip(chunks, sequences, strict=True):
            sequence.num_computed = chunk.start + chunk.num_tokens
        for sequence, token in zip(drawn, tokens, strict=True):
            sequence.append(token)
        return tuple((sequence.seq_id, token) for sequence, token in zip(drawn, tokens, strict=True))

    def _check(self, chunks: Sequence[Chunk], sequences: Sequence[SequenceMirror]) -> None:
        num_rows = sum(chunk.num_tokens for chunk in chunks)
        if num_rows > self._spec.max_step_tokens or len(chunks) > self._spec.max_running:
            raise RankDisagreement(
                f"the plan has {num_rows} tokens of {len(chunks)} sequences; "
                f"the bounds are {self._spec.max_step_tokens} and {self._spec.max_running}"
            )
        if len({chunk.seq_id for chunk in chunks}) != len(chunks):
            raise RankDisagreement("the plan has two chunks of one sequence")
        for chunk, sequence in zip(chunks, sequences, strict=True):
            end = chunk.start + chunk.num_tokens
            held = sequence.num_pages * self._spec.page_size
            sound = 0 <= chunk.start <= sequence.num_computed and chunk.num_tokens > 0
            if not sound or end > min(sequence.num_tokens, held) or (chunk.sample and end != sequence.num_tokens):
                raise RankDisagreement(
                    f"sequence {chunk.seq_id} has {sequence.num_tokens} tokens, {sequence.num_computed} computed and "
                    f"pages for {held}; the plan computes [{chunk.start}, {end}), sample {chunk.sample}"
                )
            if len(self._in_flight):
                touched = self._sequences.page_tables[sequence.table, : -(-end // self._spec.page_size)]
                self._in_flight.check_pages(touched, f"the chunk of sequence {chunk.seq_id}")

    def _batch(self, chunks: Sequence[Chunk], sequences: Sequence[SequenceMirror]) -> Batch[Int32]:
        num_rows = sum(chunk.num_tokens for chunk in chunks)
        tokens, positions = np.empty(num_rows, dtype=np.int32), np.empty(num_rows, dtype=np.int32)
        tables = np.empty(num_rows, dtype=np.int32)
        spans, sampled, first = [], [], 0
        for chunk, sequence in zip(chunks, sequences, strict=True):
            after, end = first + chunk.num_tokens, chunk.start + chunk.num_tokens
            tokens[first:after] = sequence.tokens(chunk.start, end)
            positions[first:after] = range(chunk.start, end) if chunk.num_tokens == 1 else np.arange(chunk.start, end)
            tables[first:after] = sequence.table
            spans.append(RowSpan(first_row=first, num_rows=chunk.num_tokens, table=sequence.table, num_context=end))
            if chunk.sample:
                sampled.append(after - 1)
            first = after
        page_tables = self._sequences.page_tables
        return Batch(
            num_rows=num_rows,
            num_sampled=len(sampled),
            tokens=tokens,
            positions=positions,
            page_ids=page_tables[tables, positions // self._spec.page_size],
            row_tables=tables,
            page_tables=page_tables,
            sampled_rows=np.array(sampled, dtype=np.int32),
            spans=tuple(spans),
        )
