"""Attention by flash-attn's paged calls, on CUDA. UNVERIFIED: written against its documented interface (version 2.7),
not yet run on a GPU.

Prefill and mixed steps: `flash_attn_varlen_func` with `block_table`. Pure decode: `flash_attn_with_kvcache`. Both
align the causal mask to the end of the keys, which is what a chunk at the end of a context needs. The calls want half
precision and pages of a multiple of 256 slots; keys and values may be strided over pages, so the page-major pool
serves as it is.
"""

import importlib
from typing import Any

import torch

from workers.errors import BackendUnavailable
from workers.ops.attention import HeadShape
from workers.ops.batch import Batch
from workers.ops.sdpa import PagedTorchAttention

PAGE_MULTIPLE = 256


def load_flash_attn() -> Any:
    """The flash_attn module. Raises `BackendUnavailable` with the command that installs it."""
    try:
        return importlib.import_module("flash_attn")
    except ImportError as error:
        raise BackendUnavailable(
            f"backend 'flash' needs the package flash-attn and a CUDA device ({error}); "
            "install it with: pip install 'parkade[flash]'"
        ) from None


def check_flash(device: str, page_size: int, dtype: torch.dtype) -> None:
    """Raises `BackendUnavailable` for settings flash-attn does not take."""
    if not device.startswith("cuda"):
        raise BackendUnavailable(f"backend 'flash' runs on a CUDA device, not on {device!r}; choose numba or sdpa")
    if page_size % PAGE_MULTIPLE:
        raise BackendUnavailable(f"backend 'flash' needs a page size of a multiple of {PAGE_MULTIPLE}, not {page_size}")
    if dtype not in (torch.bfloat16, torch.float16):
        raise BackendUnavailable(f"backend 'flash' keeps KV in bfloat16, not {dtype}")


class FlashAttention(PagedTorchAttention):
    """One call a layer for all sequences. The pool must be in half precision; `flash_attn` is that module."""

    def __init__(
        self, pool: torch.Tensor, heads: HeadShape, cos: torch.Tensor, sin: torch.Tensor, *, flash_attn: Any
    ) -> None:
        super().__init__(pool, heads, cos, sin)
        self._flash = flash_attn

    def attend(self, q: torch.Tensor, batch: Batch[torch.Tensor], layer: int, out: torch.Tensor) -> None:
        queries = q.view(batch.num_rows, self._heads.num_query_heads, self._heads.head_dim).to(self._pool.dtype)
        keys, values = self._pool[:, layer, 0], self._pool[:, layer, 1]  # [pages, page_size, Hkv, D]
        device = q.device
        order = torch.tensor([span.table for span in batch.spans], device=device)
        tables = batch.page_tables[order]
        contexts = torch.tensor([span.num_context for span in batch.spans], dtype=torch.int32, device=device)
        if all(span.num_rows == 1 for span in batch.spans):
            attended = self._flash.flash_attn_with_kvcache(
                queries[:, None],
                keys,
                values,
                cache_seqlens=contexts,
                block_table=tables,
                softmax_scale=self._heads.scale,
                causal=True,
            )
        else:
            attended = self._flash.flash_attn_varlen_func(
                queries,
                keys,
                values,
                cu_seqlens_q=_cumulative([span.num_rows for span in batch.spans], device),
                cu_seqlens_k=_cumulative([span.num_context for span in batch.spans], device),
                max_seqlen_q=max(span.num_rows for span in batch.spans),
                max_seqlen_k=max(span.num_context for span in batch.spans),
                softmax_scale=self._heads.scale,
                causal=True,
                block_table=tables,
            )
        out.copy_(attended.reshape(batch.num_rows, -1))


def _cumulative(lengths: list[int], device: torch.device) -> torch.Tensor:
    """[0, l0, l0 + l1, ...] as int32."""
    ends = torch.tensor([0, *lengths], dtype=torch.int32, device=device)
    return torch.cumsum(ends, 0, dtype=torch.int32)
