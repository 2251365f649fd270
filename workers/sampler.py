"""From the sampled rows' logits, each rank's share of the vocabulary, to one token a row: the same on every rank.

One exchange a step: for a greedy row each rank's best (value, token) only, for other rows its logits. A token depends
on its row's logits, its sequence's tokens and (seed, position) alone; position is the index the drawn token will have
in the whole sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from scheduler.sampling import SamplingParams
from workers.collective.protocol import Collective
from workers.counter_random import uniform
from workers.model.partition import Partition
from workers.ops.protocol import Float32, Ops
from workers.shaping import adjust, draw
from workers.token_counts import TokenCounts

A = TypeVar("A")

# A greedy row's record: value, token // SPLIT, token % SPLIT. Each is exact in float32 whatever the vocabulary.
_RECORD = 3
_SPLIT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one sampled row needs besides its logits. `counts` is given when the params have penalties."""

    params: SamplingParams
    position: int
    counts: TokenCounts | None = None

    @property
    def is_plain(self) -> bool:
        return self.params.is_greedy and not self.params.logit_bias and self.counts is None


class Sampler(Generic[A]):
    """Bound to one rank. `partitions` are all ranks' shares, in rank order."""

    def __init__(self, partitions: Sequence[Partition], rank: int, ops: Ops[A, Any], collective: Collective[A]) -> None:
        self._vocab = partitions[rank].vocab
        self._sizes = [part.vocab.size for part in partitions]
        self._ops = ops
        self._collective = collective
        self._row: npt.NDArray[np.float64] = np.empty(sum(self._sizes), dtype=np.float64)

    def sample(self, logits: A, draws: Sequence[Draw]) -> list[int]:
        """Tokens for logits [R, rank's vocabulary], one draw a row. Collective: every rank must call."""
        if not draws:
            return []
        host: Float32 | None = None
        if all(wanted.is_plain for wanted in draws):
            values, columns = self._ops.argmax_rows(logits)
        else:
            host = self._ops.to_host(logits)
            for row, wanted in enumerate(draws):
                adjust(host[row], self._vocab, wanted.params, wanted.counts)
            greedy_rows = [row for row, wanted in enumerate(draws) if wanted.params.is_greedy]
            columns = host[greedy_rows].argmax(axis=1).astype(np.int64)
            values = host[greedy_rows, columns]
        if self._collective.world_size == 1:
            return self._choose(draws, columns, host)
        return self._exchange(draws, values, columns, host)

    def _choose(self, draws: Sequence[Draw], best: npt.NDArray[np.int64], host: Float32 | None) -> list[int]:
        """Alone: nothing to exchange. `best` holds the greedy rows' tokens in order."""
        greedy = iter(best.tolist())
        tokens = []
        for row, wanted in enumerate(draws):
            if wanted.params.is_greedy:
                tokens.append(next(greedy))
            else:
                assert host is not None
                self._row[:] = host[row]
                tokens.append(self._draw(wanted))
        return tokens

    def _exchange(
        self, draws: Sequence[Draw], values: Float32, columns: npt.NDArray[np.int64], host: Float32 | None
    ) -> list[int]:
        """One all-gather of [greedy records | other rows' logits, padded to the widest share]."""
        width, num_greedy = max(self._sizes), len(values)
        drawn_rows = [row for row, wanted in enumerate(draws) if not wanted.params.is_greedy]
        payload = np.zeros((1, _RECORD * num_greedy + width * len(drawn_rows)), dtype=np.float32)
        records = payload[0, : _RECORD * num_greedy].reshape(num_greedy, _RECORD)
        tokens = columns + self._vocab.start
        records[:, 0], records[:, 1], records[:, 2] = values, tokens // _SPLIT, tokens % _SPLIT
        if host is not None:
            shares = payload[0, _RECORD * num_greedy :].reshape(len(drawn_rows), width)
            shares[:, : self._vocab.size] = host[drawn_rows]
        gathered = self._gather(payload)
        ranks, split = len(gathered), _RECORD * num_greedy
        best = iter(_best_of_ranks(gathered[:, :split].reshape(ranks, num_greedy, _RECORD)))
        logits = iter(gathered[:, split:].reshape(ranks, len(drawn_rows), width).swapaxes(0, 1))
        return [next(best) if wanted.params.is_greedy else self._draw_shares(wanted, next(logits)) for wanted in draws]

    def _gather(self, payload: Float32) -> Float32:
        out = self._ops.from_host(np.empty((self._collective.world_size, *payload.shape), dtype=np.float32))
        self._collective.all_gather(self._ops.from_host(payload), out)
        return self._ops.to_host(out)[:, 0]

    def _draw_shares(self, wanted: Draw, shares: Float32) -> int:
        start = 0
        for share, size in zip(shares, self._sizes, strict=True):
            self._row[start : start + size] = share[:size]
            start += size
        return self._draw(wanted)

    def _draw(self, wanted: Draw) -> int:
        """Always from the same buffer: vectorised sums must not see another alignment in other company."""
        return draw(self._row, wanted.params, uniform(wanted.params.seed, wanted.position))


def _best_of_ranks(records: Float32) -> list[int]:
    """Of [ranks, rows, record] the token of the largest value a row; ranks ascend in token id, so the first wins a
    tie.
    """
    rank = records[:, :, 0].argmax(axis=0)
    best = records[rank, np.arange(records.shape[1])]
    tokens = best[:, 1].astype(np.int64) * _SPLIT + best[:, 2].astype(np.int64)
    chosen: list[int] = tokens.tolist()
    return chosen
