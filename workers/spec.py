"""Everything a rank must know before it starts. Plain data: it crosses process borders."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSpec:
    """How ranks sum. `kind`: "shm" (own all-reduce, one host), "gloo", "nccl", or "single" for one rank.

    `init_method` is torch.distributed's ("tcp://127.0.0.1:PORT"); `shm_path` a file under /dev/shm that rank 0 creates
    and unlinks once every rank has mapped it. `timeout_s` bounds every wait.
    """

    kind: str
    init_method: str = ""
    shm_path: str = ""
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec:
    """One tensor-parallel worker. `num_pages` pages of `page_size` slots on the device, `arena_pages` in host RAM.

    `dtype` and `kv_dtype` are "bfloat16" or "float32"; `backend` is "numba" (CPU), "sdpa" (torch, any device) or
    "flash" (CUDA); `max_step_tokens` bounds the rows of one forward pass, `max_running` the sequences in it.

    `arena_prefix` is the arena's name in shared memory without the rank, the same for all ranks of the group; "" has
    one made up. Arenas that name one `node_budget_name` share `node_budget_bytes` of host RAM; "" is no such budget.
    """

    model_dir: str
    rank: int
    world_size: int
    collective: CollectiveSpec
    num_pages: int
    arena_pages: int
    arena_prefix: str = ""
    node_budget_name: str = ""
    node_budget_bytes: int = 0
    page_size: int = 16
    max_model_len: int = 8192
    max_step_tokens: int = 512
    max_running: int = 64
    device: str = "cpu"
    dtype: str = "bfloat16"
    kv_dtype: str = "float32"
    backend: str = "numba"
    num_threads: int = 1
