"""One tensor-parallel rank: it mirrors sequences from plans, runs their rows, samples, and copies pages out and in.

It decides nothing. Plans are executed strictly in order; a plan that contradicts what the rank knows is refused with
`RankDisagreement`, after which the whole group must stop.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from scheduler.plan import Chunk, ParkOrder, RestoreOrder, StepPlan
from workers.arena import Arena
from workers.collective.protocol import Collective
from workers.errors import DoesNotFit, RankDisagreement
from workers.model.config import read_model_config
from workers.model.partition import partition
from workers.model.shard import ModelShard
from workers.ops.backend import check_backend, open_backend
from workers.ops.batch import Batch, Int32, RowSpan
from workers.parked_pages import ParkedPages
from workers.sampler import Draw, Sampler
from workers.sequences import SequenceMirror, SequenceTable, check_pages
from workers.spec import RankSpec
from workers.weights.loader import Progress, load_shard

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswer:
    """`tokens` holds (seq_id, token) of every chunk with `sample`, in plan order; `failed_copies` the sequences whose
    copy failed here; `step_s` is what the step took here, in seconds.
    """

    step: int
    tokens: tuple[tuple[int, int], ...] = ()
    failed_copies: tuple[int, ...] = ()
    step_s: float = 0.0


class Rank:
    """Weights, KV shard, arena and mirrors of one rank. Not thread-safe: one plan at a time."""

    def __init__(self, spec: RankSpec, collective: Collective[Any], progress: Progress | None = None) -> None:
        """Load this rank's weights. Raises `ModelError`, `CannotPartition`, `BackendUnavailable` or `DoesNotFit`."""
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
        self._arena = Arena(spec.arena_pages, backend.kv.page_bytes)
        self._parked = ParkedPages(self._arena)
        self._sequences = SequenceTable(-(-spec.max_model_len // spec.page_size), spec.num_pages)
        self._next_step = 0
        _log.info("rank %d of %d is loaded: %s, %s", spec.rank, spec.world_size, config.architecture, part)

    @property
    def page_bytes(self) -> int:
        return self._kv.page_bytes

    @property
    def num_sequences(self) -> int:
        return len(self._sequences)

    def execute(self, plan: StepPlan) -> RankAnswer:
        """Run one plan, whole. Raises `RankDisagreement`; the rank is of no further use then."""
        started = time.perf_counter()
        if plan.step != self._next_step:
            raise RankDisagreement(f"plan {plan.step} came where plan {self._next_step} was due")
        self._next_step += 1
        for seq_id in plan.finished:
            self._sequences.remove(seq_id)
            self._parked.release(seq_id)
        failed = [order.seq_id for order in plan.parks if not self._park(order)]
        failed += [order.seq_id for order in plan.restores if not self._restore(order)]
        for new in plan.new:
            self._sequences.add(new)
        for grant in plan.grants:
            self._sequences.grant(grant.seq_id, grant.page_ids)
        tokens = self._compute(plan.chunks) if plan.chunks else ()
        return RankAnswer(
            step=plan.step, tokens=tokens, failed_copies=tuple(failed), step_s=time.perf_counter() - started
        )

    def close(self) -> None:
        """Give back the arena and leave the collective. Idempotent."""
        self._arena.close()
        self._collective.close()

    def _park(self, order: ParkOrder) -> bool:
        sequence = self._sequences.get(order.seq_id)
        pages = check_pages(order.page_ids, self._kv.num_pages, f"the park of {order.seq_id}")
        slots = check_pages(order.arena_ids, self._arena.num_slots, f"the park of {order.seq_id}")
        if len(pages) != len(slots) or len(pages) > sequence.num_pages:
            raise RankDisagreement(
                f"the park of {order.seq_id} moves {len(pages)} of its {sequence.num_pages} pages to {len(slots)} slots"
            )
        try:
            self._kv.copy_out(pages, self._arena.host, slots)
        except (MemoryError, RuntimeError) as error:
            _log.warning("copy out of sequence %d failed: %s", order.seq_id, error)
            return False
        self._parked.hold(order.seq_id, order.arena_ids, self._next_step)
        return True

    def _restore(self, order: RestoreOrder) -> bool:
        pages = check_pages(order.page_ids, self._kv.num_pages, f"the restore of {order.seq_id}")
        slots = check_pages(order.arena_ids, self._arena.num_slots, f"the restore of {order.seq_id}")
        if len(slots) > len(pages):
            raise RankDisagreement(f"the restore of {order.seq_id} has {len(slots)} slots for {len(pages)} pages")
        self._parked.check(order.seq_id, order.arena_ids)
        try:
            self._kv.copy_in(self._arena.host, slots, pages[: len(slots)])
        except (MemoryError, RuntimeError) as error:
            _log.warning("copy in of sequence %d failed: %s", order.seq_id, error)
            return False
        self._sequences.replace_pages(order.seq_id, order.page_ids)
        self._parked.restored(order.seq_id, self._next_step)
        return True

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
            self._parked.computes(chunk.seq_id, self._next_step)
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
