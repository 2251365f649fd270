"""The flash-attn calls against an interpreter of that package's documentation.

The interpreter takes exactly the arguments the documentation names, checks the shapes and types it promises, and
computes with plain torch; so a wrong argument, mask alignment or block table shows here. Speed and the real package
do not.
"""

import numpy as np
import pytest
import torch

from workers.ops.attention import HeadNorms, HeadShape
from workers.ops.batch import Batch, Int32, RowSpan
from workers.ops.flash import FlashAttention
from workers.ops.sdpa import SdpaAttention

HEADS = HeadShape(num_query_heads=6, num_kv_heads=2, head_dim=32, page_size=256)
NO_NORMS: HeadNorms[torch.Tensor] = HeadNorms(query=None, key=None, eps=0.0)


class DocumentedFlashAttn:
    """flash_attn 2.7: causal masks are aligned to the bottom right; block_table lists pages of a multiple of 256
    slots.
    """

    def __init__(self) -> None:
        self.called: list[str] = []

    def flash_attn_varlen_func(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        softmax_scale: float,
        causal: bool,
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        self.called.append("varlen")
        assert q.dim() == 3
        assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
        queries, keys = cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist()
        assert (max(queries), max(keys)) == (max_seqlen_q, max_seqlen_k)
        parts = torch.split(q, queries)
        attended = [
            paged(part, k, v, block_table[row], length, softmax_scale, causal)
            for row, (part, length) in enumerate(zip(parts, keys, strict=True))
        ]
        return torch.cat(attended)

    def flash_attn_with_kvcache(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        *,
        cache_seqlens: torch.Tensor,
        block_table: torch.Tensor,
        softmax_scale: float,
        causal: bool,
    ) -> torch.Tensor:
        self.called.append("kvcache")
        assert q.dim() == 4
        assert cache_seqlens.dtype == torch.int32
        rows = zip(q, block_table, cache_seqlens.tolist(), strict=True)
        return torch.stack(
            [paged(row, k_cache, v_cache, table, length, softmax_scale, causal) for row, table, length in rows]
        )


def paged(  # noqa: PLR0917 - in the documentation's order
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    length: int,
    scale: float,
    causal: bool,
) -> torch.Tensor:
    """q [rows, Hq, D] over the first `length` slots of the pages in `table`."""
    assert k.shape[1] % 256 == 0
    assert table.dtype == torch.int32
    assert q.dtype == k.dtype == v.dtype == torch.bfloat16
    assert k.stride(-1) == v.stride(-1) == 1
    pages = table[: -(-length // k.shape[1])].long()
    keys, values = (x[pages].flatten(0, 1)[:length].float() for x in (k, v))
    group = q.shape[1] // k.shape[2]
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys.repeat_interleave(group, 1)) * scale
    if causal:
        rows, columns = torch.arange(len(q))[:, None], torch.arange(length)[None]
        scores = scores.masked_fill(columns > rows + length - len(q), float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values.repeat_interleave(group, 1)).to(q.dtype)


def make_batch(lengths: list[tuple[int, int]]) -> Batch[Int32]:
    """Sequences of (rows, context), each with pages of its own in descending order; table rows run backwards."""
    tables = np.arange(2 * len(lengths), dtype=np.int32)[::-1].reshape(-1, 2).copy()
    positions: list[int] = []
    row_tables: list[int] = []
    spans, first = [], 0
    for number, (num_rows, context) in enumerate(lengths):
        table = len(lengths) - 1 - number
        positions += range(context - num_rows, context)
        row_tables += [table] * num_rows
        spans.append(RowSpan(first_row=first, num_rows=num_rows, table=table, num_context=context))
        first += num_rows
    where = np.array(positions, dtype=np.int32)
    of_row = np.array(row_tables, dtype=np.int32)
    return Batch(
        num_rows=first,
        num_sampled=0,
        tokens=np.zeros(first, dtype=np.int32),
        positions=where,
        page_ids=tables[of_row, where // 256],
        row_tables=of_row,
        page_tables=tables,
        sampled_rows=np.empty(0, dtype=np.int32),
        spans=tuple(spans),
    )


@pytest.mark.parametrize(
    ("lengths", "call"),
    [([(1, 300), (1, 1), (1, 512)], "kvcache"), ([(20, 20), (1, 400), (33, 290)], "varlen"), ([(5, 256)], "varlen")],
)
def test_flash_asks_for_what_sdpa_computes(lengths: list[tuple[int, int]], call: str) -> None:
    torch.manual_seed(0)
    pool = torch.randn(2 * len(lengths), 3, 2, 256, 2, 32).to(torch.bfloat16)
    angles = torch.rand(512, 16)
    flash_attn = DocumentedFlashAttn()
    flash = FlashAttention(pool.clone(), HEADS, angles.cos(), angles.sin(), flash_attn=flash_attn)
    plain = SdpaAttention(pool.clone(), HEADS, angles.cos(), angles.sin())
    batch = flash.place(make_batch(lengths))
    qkv = torch.randn(batch.num_rows, HEADS.qkv_columns)
    results = []
    for attention in (flash, plain):
        q, out = torch.empty(2, batch.num_rows, HEADS.query_columns)
        attention.rope_write(qkv, batch, 1, NO_NORMS, q)
        attention.attend(q, batch, 1, out)
        results.append(out)
    assert flash_attn.called == [call]
    torch.testing.assert_close(results[0], results[1], atol=0.03, rtol=0.03)
