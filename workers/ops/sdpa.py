"""Attention by gathering a sequence's pages and calling torch's own. Slow, plain, on any device: the reference."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from workers.ops.attention import HeadNorms, HeadShape
from workers.ops.batch import Batch, Int32, RowSpan


class PagedTorchAttention:
    """What the torch implementations share: placing a batch, rotating, writing pages.

    `pool` is [num_pages, num_layers, 2, page_size, Hkv, D]; cosines and sines are [positions, D / 2].
    """

    def __init__(self, pool: torch.Tensor, heads: HeadShape, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self._pool = pool
        self._heads = heads
        self._cos = cos.to(pool.device)
        self._sin = sin.to(pool.device)

    def place(self, batch: Batch[Int32]) -> Batch[torch.Tensor]:
        def move(x: Int32) -> torch.Tensor:
            return torch.from_numpy(x).to(self._pool.device)

        return Batch(
            num_rows=batch.num_rows,
            num_sampled=batch.num_sampled,
            tokens=move(batch.tokens),
            positions=move(batch.positions),
            page_ids=move(batch.page_ids),
            row_tables=move(batch.row_tables),
            page_tables=move(batch.page_tables),
            sampled_rows=move(batch.sampled_rows),
            spans=batch.spans,
        )

    def rope_write(
        self,
        qkv: torch.Tensor,
        batch: Batch[torch.Tensor],
        layer: int,
        norms: HeadNorms[torch.Tensor],
        q_out: torch.Tensor,
    ) -> None:
        heads = self._heads
        by_head = qkv.view(batch.num_rows, -1, heads.head_dim)
        sizes = [heads.num_query_heads, heads.num_kv_heads, heads.num_kv_heads]
        q, k, v = torch.split(by_head, sizes, dim=1)
        if norms.query is not None and norms.key is not None:
            q, k = _head_norm(q, norms.query, norms.eps), _head_norm(k, norms.key, norms.eps)
        positions = batch.positions.long()
        cos, sin = self._cos[positions][:, None, :], self._sin[positions][:, None, :]
        q_out.copy_(_rotate(q, cos, sin).reshape(batch.num_rows, -1))
        pages, slots = batch.page_ids.long(), positions % heads.page_size
        self._pool[pages, layer, 0, slots] = _rotate(k, cos, sin).to(self._pool.dtype)
        self._pool[pages, layer, 1, slots] = v.to(self._pool.dtype)


class SdpaAttention(PagedTorchAttention):
    """One call of torch's scaled dot product a sequence, over a gathered copy of its pages."""

    def attend(self, q: torch.Tensor, batch: Batch[torch.Tensor], layer: int, out: torch.Tensor) -> None:
        for span in batch.spans:
            rows = slice(span.first_row, span.first_row + span.num_rows)
            k, v = self._gather(batch, span, layer)
            queries = q[rows].view(span.num_rows, -1, self._heads.head_dim).transpose(0, 1)
            visible = torch.arange(span.num_context, device=q.device)[None, :] <= batch.positions[rows, None]
            attended = F.scaled_dot_product_attention(
                queries[None],
                k[None],
                v[None],
                attn_mask=visible,
                scale=self._heads.scale,
                enable_gqa=True,
            )
            out[rows] = attended[0].transpose(0, 1).reshape(span.num_rows, -1)

    def _gather(self, batch: Batch[torch.Tensor], span: RowSpan, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The sequence's keys and values as float32 [Hkv, num_context, D]."""
        num_pages = -(-span.num_context // self._heads.page_size)
        pages = batch.page_tables[span.table, :num_pages].long()
        kv = self._pool[pages, layer].float()  # [pages, 2, page_size, Hkv, D]
        by_slot = kv.transpose(0, 1).flatten(1, 2)[:, : span.num_context].transpose(1, 2)
        return by_slot[0], by_slot[1]


def _head_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Half-split rotation: pairs are (i, i + D/2), as transformers lays them out."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
