"""A server with every number settled: what the config, the model and the machine give together. Plain data, it crosses
to the driver process as JSON."""

import os
from dataclasses import dataclass
from pathlib import Path

from deploy.config import ServeConfig
from deploy.serve.errors import CannotServe
from workers.errors import WorkerError
from workers.model.config import ModelConfig, read_model_config
from workers.model.memory import RankBytes, rank_bytes
from workers.model.partition import Partition, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPlan:
    """Where the admin interface listens (`port` 0: any free one), and its files; no `token_file`: one is made."""

    host: str
    port: int
    token_file: str | None
    tls_cert: str | None
    tls_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """`num_pages` and `arena_pages` are those of every rank; a page holds `page_size` tokens of that rank's heads.

    `page_bytes` is one page on all ranks together. With `park` and no `arena_pages`, what is parked is recomputed.
    """

    model_dir: str
    model_id: str
    host: str
    port: int
    api_key_file: str | None
    admin: AdminPlan
    metrics_port: int | None
    tensor_parallel_size: int
    num_pages: int
    arena_pages: int
    page_bytes: int
    page_size: int
    max_running: int
    max_model_len: int
    max_step_tokens: int
    max_queued_requests: int
    max_queued_tokens: int
    park: bool
    recompute: bool
    dtype: str
    kv_dtype: str
    backend: str
    device: str
    collective: str
    num_threads: int
    ray_address: str | None
    log_level: str

    @property
    def pool_tokens(self) -> int:
        return self.num_pages * self.page_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the plan costs: per rank, in rank order."""

    shares: tuple[Partition, ...]
    ranks: tuple[RankBytes, ...]
    arena_bytes: int

    @property
    def weight_bytes(self) -> int:
        return sum(rank.weights for rank in self.ranks)

    @property
    def page_bytes(self) -> int:
        """One page on all ranks together."""
        return sum(rank.page for rank in self.ranks)


def make_plan(config: ServeConfig, model_dir: Path) -> tuple[ServerPlan, Sizes]:
    """Raises `CannotServe` when the model cannot be served as asked."""
    try:
        model = read_model_config(model_dir)
        shares = partition(model, config.tensor_parallel_size)
        ranks = rank_bytes(
            model,
            config.tensor_parallel_size,
            page_size=config.page_size,
            dtype=config.dtype,
            kv_dtype=config.kv_dtype,
        )
    except WorkerError as error:
        raise CannotServe(str(error)) from error
    page_bytes = sum(rank.page for rank in ranks)
    arena_pages = _arena_pages(config, page_bytes)
    plan = ServerPlan(
        model_dir=str(model_dir),
        model_id=config.served_model_name or _short_name(config.model, model_dir),
        host=config.host,
        port=config.port,
        api_key_file=_absolute(config.api_key_file),
        admin=_admin_plan(config),
        metrics_port=config.metrics_port,
        tensor_parallel_size=config.tensor_parallel_size,
        num_pages=config.num_pages,
        arena_pages=arena_pages,
        page_bytes=page_bytes,
        page_size=config.page_size,
        max_running=config.max_running,
        max_model_len=_max_model_len(config, model),
        max_step_tokens=config.max_step_tokens,
        max_queued_requests=config.max_queued_requests,
        max_queued_tokens=config.max_queued_tokens,
        park=config.park,
        recompute=config.park and config.recompute,
        dtype=config.dtype,
        kv_dtype=config.kv_dtype,
        backend=config.backend,
        device="cuda" if config.backend == "flash" else "cpu",
        collective=_collective(config),
        num_threads=config.num_threads or max(1, _num_cores() // config.tensor_parallel_size),
        ray_address=config.ray_address,
        log_level=config.log_level,
    )
    return plan, Sizes(shares=shares, ranks=ranks, arena_bytes=arena_pages * page_bytes)


def _arena_pages(config: ServeConfig, page_bytes: int) -> int:
    if not config.park:
        return 0
    pages = config.host_ram // page_bytes
    if pages == 0 and not config.recompute:
        raise CannotServe(
            f"host_ram {config.host_ram} holds no page of {page_bytes} bytes, and recompute is off: nothing could be "
            f"parked; give --host-ram {(page_bytes >> 20) + 1}MiB or more, or --recompute, or --no-park"
        )
    return pages


def _admin_plan(config: ServeConfig) -> AdminPlan:
    return AdminPlan(
        host=config.admin_host,
        port=config.settled_admin_port,
        token_file=_absolute(config.admin_token_file),
        tls_cert=_absolute(config.admin_tls_cert),
        tls_key=_absolute(config.admin_tls_key),
    )


def _absolute(path: Path | None) -> str | None:
    """Files are read by processes with other working folders, too."""
    return None if path is None else str(path.expanduser().absolute())


def _max_model_len(config: ServeConfig, model: ModelConfig) -> int:
    if config.max_model_len is None:
        return model.max_positions
    if config.max_model_len > model.max_positions:
        raise CannotServe(
            f"max_model_len {config.max_model_len} is more than the {model.max_positions} positions of this model"
        )
    return config.max_model_len


def _short_name(asked: str, model_dir: Path) -> str:
    """The known name or hub id as it was typed; of a path its last part."""
    return model_dir.name if Path(asked).expanduser().exists() else asked


def _collective(config: ServeConfig) -> str:
    if config.tensor_parallel_size == 1:
        return "single"
    if config.collective != "auto":
        return config.collective
    return "nccl" if config.backend == "flash" else "shm"


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))
