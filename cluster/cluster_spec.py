"""What a cluster is made of. Plain data; knows nothing of Ray.

What a cluster expects of the Ray it runs on, wherever that is started: RAY_worker_niceness=0 (else ranks starve at
nice 15), RAY_AUTH_MODE set alike in every process, and one logical CPU per rank; engines and admission take none.
"""

import secrets
from dataclasses import dataclass, field, replace

from cluster.actor_log import LogSpec
from scheduler.admission import AdmissionPolicy, GroupCapacity
from scheduler.engine import EngineConfig
from workers.spec import RankSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """One engine and its ranks. `rank` is the spec of rank 0; of its collective only kind and timeout count.

    `links`: "unix" keeps engine, ranks and gateways on one host, "tcp" lets them spread. `page_bytes`: one page on all
    ranks together, 0 where nobody has said.
    """

    group_id: str
    rank: RankSpec
    engine: EngineConfig
    links: str
    ready_timeout_s: float
    step_timeout_s: float
    page_bytes: int = 0
    log: LogSpec = field(default_factory=LogSpec)

    @property
    def capacity(self) -> GroupCapacity:
        return capacity_of(self.engine, self.page_bytes)


def capacity_of(engine: EngineConfig, page_bytes: int = 0) -> GroupCapacity:
    """What admission is told of an engine when it registers."""
    return GroupCapacity(
        group_id=engine.group_id,
        num_pages=engine.num_pages,
        page_size=engine.page_size,
        seats=engine.max_running,
        max_model_len=engine.max_model_len,
        recompute=engine.recompute,
        park=engine.park,
        page_bytes=page_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """`num_groups` copies of one model, each on `rank.world_size` ranks, under one admission.

    `cluster_id` names it on its Ray; `instance` is another at every start, and names what it leaves in shared memory.
    `park=False`: an overflow fails. `recompute=False`: nobody is parked but into host RAM, of which `rank.arena_pages`
    pages are there on each node, for all its groups together; 0 pages with `recompute` drop what is parked.
    `page_bytes`: one page on all ranks together, 0 for no budget in bytes. `ready_timeout_s` bounds placement and
    loading, `step_timeout_s` one step.
    """

    cluster_id: str
    rank: RankSpec
    instance: str = field(default_factory=lambda: secrets.token_hex(6))
    num_groups: int = 1
    policy: AdmissionPolicy = field(default_factory=AdmissionPolicy)
    lookahead_steps: int = 8
    max_inflight: int = 2
    park: bool = True
    recompute: bool = True
    page_bytes: int = 0
    links: str = "unix"
    ready_timeout_s: float = 600.0
    step_timeout_s: float = 120.0
    log: LogSpec = field(default_factory=LogSpec)

    def __post_init__(self) -> None:
        if self.num_groups < 1:
            raise ValueError(f"num_groups is {self.num_groups}; it must be at least 1")
        if self.links not in ("unix", "tcp"):
            raise ValueError(f'links is {self.links!r}; choose "unix" (one host) or "tcp"')
        if self.page_bytes < 0:
            raise ValueError(f"page_bytes is {self.page_bytes}; it must be 0 (unknown) or more")

    @property
    def namespace(self) -> str:
        return namespace_of(self.cluster_id)

    def groups(self) -> tuple[GroupSpec, ...]:
        """Raises BadEngineConfig for sizes no engine can work with."""
        return tuple(self._group(f"group-{number}") for number in range(self.num_groups))

    @property
    def node_budget_bytes(self) -> int:
        """Host RAM for parked pages on one node, whatever number of groups it holds."""
        return self._arena_pages * self.page_bytes

    @property
    def _arena_pages(self) -> int:
        return self.rank.arena_pages if self.park else 0

    def _group(self, group_id: str) -> GroupSpec:
        budget_bytes = self.node_budget_bytes
        rank = replace(
            self.rank,
            arena_pages=self._arena_pages,
            arena_prefix=f"parkade-arena-{self.instance}-{group_id}",
            node_budget_name=f"parkade-budget-{self.instance}" if budget_bytes else "",
            node_budget_bytes=budget_bytes,
        )
        engine = EngineConfig(
            group_id=group_id,
            num_pages=rank.num_pages,
            arena_pages=rank.arena_pages,
            page_size=rank.page_size,
            max_running=rank.max_running,
            max_step_tokens=rank.max_step_tokens,
            max_model_len=rank.max_model_len,
            lookahead_steps=self.lookahead_steps,
            park=self.park,
            recompute=self.recompute,
            max_inflight=self.max_inflight,
        )
        return GroupSpec(
            group_id=group_id,
            rank=rank,
            engine=engine,
            links=self.links,
            ready_timeout_s=self.ready_timeout_s,
            step_timeout_s=self.step_timeout_s,
            page_bytes=self.page_bytes,
            log=self.log,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAddress:
    """Where a gateway fetches the tokens of one group, and the secret it shows there."""

    group_id: str
    endpoint: str
    token: str = field(repr=False)


def namespace_of(cluster_id: str) -> str:
    """The Ray namespace of a cluster's named actors."""
    return f"parkade-{cluster_id}"


ADMISSION_NAME = "admission"
ENGINE_PREFIX = "engine-"
