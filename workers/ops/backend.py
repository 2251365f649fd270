"""From a spec's `backend` to its operations, attention and KV pool: the one place where backends are chosen.

Imports are made only for the backend that is chosen: numba's take time, flash-attn's may be missing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from workers.errors import BackendUnavailable, DoesNotFit
from workers.kv_shard import DeviceKvShard, HostKvShard, KvShard
from workers.model.block import Block, PlainBlock
from workers.model.config import ModelConfig
from workers.model.partition import Partition
from workers.model.rope import rope_tables
from workers.ops.attention import Attention, HeadShape
from workers.ops.protocol import Ops
from workers.spec import RankSpec

BACKENDS = ("numba", "sdpa", "flash")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Bound together: `attention` and `block` write the pool that `kv` copies. The array type is the backend's own."""

    ops: Ops[Any, Any]
    attention: Attention[Any]
    block: Block[Any, Any]
    kv: KvShard
    heads: HeadShape


def check_backend(spec: RankSpec) -> None:
    """Raises `BackendUnavailable` for a combination of settings that cannot run; cheap, before anything is loaded."""
    if spec.backend not in BACKENDS:
        raise BackendUnavailable(f"backend {spec.backend!r} is unknown; choose one of {', '.join(BACKENDS)}")
    for name, dtype in (("dtype", spec.dtype), ("kv_dtype", spec.kv_dtype)):
        if dtype not in DTYPES:
            raise BackendUnavailable(f"{name} {dtype!r} is unknown; choose one of {', '.join(DTYPES)}")
    if spec.backend == "numba" and spec.device != "cpu":
        raise BackendUnavailable(f"backend 'numba' runs on the CPU, not on {spec.device!r}; choose sdpa or flash")
    if spec.page_size < 16 or spec.page_size % 16:
        raise BackendUnavailable(f"page size {spec.page_size} is not a positive multiple of 16")
    if spec.backend == "flash":
        from workers.ops.flash import check_flash, load_flash_attn  # noqa: PLC0415  # optional extra

        check_flash(spec.device, spec.page_size, DTYPES[spec.kv_dtype])
        load_flash_attn()


def head_shape(config: ModelConfig, part: Partition, page_size: int) -> HeadShape:
    return HeadShape(
        num_query_heads=part.query_heads.size,
        num_kv_heads=part.kv_heads.size,
        head_dim=config.head_dim,
        page_size=page_size,
    )


def open_backend(spec: RankSpec, config: ModelConfig, part: Partition) -> Backend:
    """Allocate the pool and bind the kernels to it. Raises `BackendUnavailable` or `DoesNotFit`."""
    check_backend(spec)
    heads = head_shape(config, part, spec.page_size)
    return _open_numba(spec, config, heads) if spec.backend == "numba" else _open_torch(spec, config, heads)


@contextmanager
def _allocating(spec: RankSpec) -> Iterator[None]:
    """numpy raises MemoryError, torch RuntimeError with many lines."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise DoesNotFit(f"a KV pool of {spec.num_pages} pages cannot be allocated: {reason}") from None


def _open_numba(spec: RankSpec, config: ModelConfig, heads: HeadShape) -> Backend:
    from workers.ops.numba_attention import NumbaAttention, make_pool  # noqa: PLC0415  # numba takes time to import
    from workers.ops.numba_block import NumbaBlock  # noqa: PLC0415
    from workers.ops.numba_ops import NumbaOps  # noqa: PLC0415

    with _allocating(spec):
        pool = make_pool(spec.num_pages, config.num_layers, heads, spec.kv_dtype)
    cos, sin = rope_tables(config.rope, config.head_dim, spec.max_model_len)
    ops = NumbaOps(DTYPES[spec.dtype], spec.num_threads)
    attention = NumbaAttention(pool, heads, cos, sin, spec.num_threads)
    block: Block[Any, Any]
    if spec.num_threads == 1:
        block = NumbaBlock(attention, config.rms_eps, "uint16" if spec.dtype == "bfloat16" else "float32")
    else:
        block = PlainBlock(ops, attention, config.rms_eps)
    return Backend(ops=ops, attention=attention, block=block, kv=HostKvShard(pool), heads=heads)


def _open_torch(spec: RankSpec, config: ModelConfig, heads: HeadShape) -> Backend:
    from workers.ops.sdpa import SdpaAttention  # noqa: PLC0415  # only for the torch backends
    from workers.ops.torch_ops import TorchOps  # noqa: PLC0415

    shape = (spec.num_pages, config.num_layers, 2, heads.page_size, heads.num_kv_heads, heads.head_dim)
    with _allocating(spec):
        pool = torch.zeros(shape, dtype=DTYPES[spec.kv_dtype], device=spec.device)
    cos, sin = (torch.from_numpy(table) for table in rope_tables(config.rope, config.head_dim, spec.max_model_len))
    attention: Attention[torch.Tensor]
    if spec.backend == "flash":
        from workers.ops.flash import FlashAttention, load_flash_attn  # noqa: PLC0415  # optional extra

        attention = FlashAttention(pool, heads, cos, sin, flash_attn=load_flash_attn())
    else:
        attention = SdpaAttention(pool, heads, cos, sin)
    on_host = pool.device.type == "cpu"
    kv: KvShard = HostKvShard(pool.view(torch.uint8).numpy()) if on_host else DeviceKvShard(pool)
    ops = TorchOps(spec.device, DTYPES[spec.dtype])
    block = PlainBlock(ops, attention, config.rms_eps)
    return Backend(ops=ops, attention=attention, block=block, kv=kv, heads=heads)
