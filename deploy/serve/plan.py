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
class ServerPlan:
    """`num_pages` and `arena_pages` are those of every rank; a page holds `page_size` tokens of that rank's heads."""

    model_dir: str
    model_id: str
    host: str
    port: int
    tensor_parallel_size: int
    num_pages: int
    arena_pages: int
    page_size: int
    max_running: int
    max_model_len: int
    max_step_tokens: int
    max_queued_requests: int
    park: bool
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
    max_model_len = _max_model_len(config, model)
    page_bytes = sum(rank.page for rank in ranks)
    arena_pages = config.host_ram // page_bytes if config.park else 0
    plan = ServerPlan(
        model_dir=str(model_dir),
        model_id=config.served_model_name or _short_name(config.model, model_dir),
        host=config.host,
        port=config.port,
        tensor_parallel_size=config.tensor_parallel_size,
        num_pages=config.num_pages,
        arena_pages=arena_pages,
        page_size=config.page_size,
        max_running=config.max_running,
        max_model_len=max_model_len,
        max_step_tokens=config.max_step_tokens,
        max_queued_requests=config.max_queued_requests,
        park=config.park and arena_pages > 0,
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
