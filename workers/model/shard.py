"""One rank's forward pass: its share of every layer over the rows of a batch.

Collectives of one pass: one all-reduce for the embedding, two a layer, nothing else. The head's exchange is the
sampler's. All intermediate arrays are allocated once, for the most rows a step may have.
"""

from typing import Generic, TypeVar

from workers.collective.protocol import Collective
from workers.model.block import Block, Buffers
from workers.model.config import ModelConfig
from workers.model.partition import Partition
from workers.ops.attention import HeadShape
from workers.ops.batch import Batch
from workers.ops.protocol import Ops
from workers.weights.shard_weights import ShardWeights

A = TypeVar("A")
L = TypeVar("L")


class ModelShard(Generic[A, L]):
    """`forward` gives the logits [R, rank's vocabulary] of the sampled rows; they stay valid until the next call."""

    def __init__(
        self,
        config: ModelConfig,
        part: Partition,
        weights: ShardWeights[A, L],
        ops: Ops[A, L],
        *,
        block: Block[A, L],
        collective: Collective[A],
        heads: HeadShape,
        max_rows: int,
        max_sampled: int,
    ) -> None:
        self._eps = config.rms_eps
        self._first_token = part.vocab.start
        self._weights = weights
        self._ops = ops
        self._block = block
        self._collective = collective
        self._buffers: Buffers[A] = Buffers(
            x=ops.buffer(max_rows, config.hidden_size),
            h=ops.buffer(max_rows, config.hidden_size),
            qkv=ops.buffer(max_rows, heads.qkv_columns),
            q=ops.buffer(max_rows, heads.query_columns),
            attended=ops.buffer(max_rows, heads.query_columns),
            gate_up=ops.buffer(max_rows, 2 * part.mlp.size),
            mlp=ops.buffer(max_rows, part.mlp.size),
        )
        self._sampled = ops.buffer(max_sampled, config.hidden_size)
        self._normed = ops.buffer(max_sampled, config.hidden_size)
        self._logits = ops.buffer(max_sampled, part.vocab.size)
        self._views: dict[int, Buffers[A]] = {}

    def forward(self, batch: Batch[A]) -> A:
        """Write the KV of all rows, and return the logits of the sampled ones."""
        cut = self._cut(batch.num_rows)
        self._ops.embed(batch.tokens, self._weights.embedding, self._first_token, cut.x)
        self._collective.all_reduce(cut.x)
        block, all_reduce = self._block, self._collective.all_reduce
        for number, layer in enumerate(self._weights.layers):
            block.attend(number, layer, batch, cut)
            all_reduce(cut.h)
            block.feed_forward(layer, cut)
            all_reduce(cut.h)
        self._ops.add(cut.x, cut.h)
        return self._head(batch, cut.x)

    def _head(self, batch: Batch[A], x: A) -> A:
        ops, num = self._ops, batch.num_sampled
        logits = ops.rows(self._logits, num)
        if num:
            sampled, normed = ops.rows(self._sampled, num), ops.rows(self._normed, num)
            ops.take_rows(x, batch.sampled_rows, sampled)
            ops.rms_norm(sampled, self._weights.final_norm, self._eps, normed)
            ops.linear(normed, self._weights.head, logits)
        return logits

    def _cut(self, num_rows: int) -> Buffers[A]:
        """Views of the first rows, kept: decode steps ask for the same few sizes again and again."""
        cut = self._views.get(num_rows)
        if cut is None:
            rows, whole = self._ops.rows, self._buffers
            cut = self._views[num_rows] = Buffers(
                x=rows(whole.x, num_rows),
                h=rows(whole.h, num_rows),
                qkv=rows(whole.qkv, num_rows),
                q=rows(whole.q, num_rows),
                attended=rows(whole.attended, num_rows),
                gate_up=rows(whole.gate_up, num_rows),
                mlp=rows(whole.mlp, num_rows),
            )
        return cut
