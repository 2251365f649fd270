"""Where the ranks of a group go. Refuses early, with both numbers, what no node can hold."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util import get_node_ip_address
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from cluster.cluster_spec import GroupSpec
from cluster.errors import CannotPlace

_PLACE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Node:
    """`resources` are its totals, whoever uses them."""

    node_id: str
    resources: Mapping[str, float]


def live_nodes() -> list[Node]:
    """Every node of this Ray."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [Node(node["NodeID"], node["Resources"]) for node in nodes if node["Alive"]]


def this_node_ip() -> str:
    """The address by which other nodes know this process's node."""
    return str(get_node_ip_address())  # type: ignore[no-untyped-call]


def rank_resources(group: GroupSpec) -> dict[str, float]:
    """What one rank asks for."""
    return {"CPU": 1.0} | ({"GPU": 1.0} if group.rank.device.startswith("cuda") else {})


def choose_nodes(groups: Sequence[GroupSpec], nodes: Sequence[Node]) -> list[str | None]:
    """For each group the node of its engine, and of its ranks too with "unix" links; None: any. Raises CannotPlace."""
    left = {node.node_id: dict(node.resources) for node in nodes}
    chosen: list[str | None] = []
    for group in groups:
        need = {name: amount * group.rank.world_size for name, amount in rank_resources(group).items()}
        if group.links != "unix":
            _check_total(need, left)
            chosen.append(None)
            continue
        fitting = [node_id for node_id, free in left.items() if _fits(need, free)]
        if not fitting:
            raise CannotPlace(_no_node(group, need, nodes, len(groups)))
        for name, amount in need.items():
            left[fitting[0]][name] -= amount
        chosen.append(fitting[0])
    return chosen


async def reserve(group: GroupSpec, node_ip: str) -> PlacementGroup:
    """Bundle i for rank i, on the engine's node with "unix" links. Raises CannotPlace after 30 s."""
    bundles = [dict(rank_resources(group)) for _ in range(group.rank.world_size)]
    together = group.links == "unix"
    if together:
        bundles[0][f"node:{node_ip}"] = 0.001
    reserved: PlacementGroup = placement_group(bundles, strategy="STRICT_PACK" if together else "PACK")
    if not await asyncio.to_thread(reserved.wait, _PLACE_TIMEOUT_S):
        remove_placement_group(reserved)
        available: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
        free = {name: available.get(name, 0.0) for name in rank_resources(group)}
        raise CannotPlace(
            f"no room for {len(bundles)} ranks within {_PLACE_TIMEOUT_S:g} s: each needs {rank_resources(group)}, "
            f"and {free} are free on the whole Ray; stop what else runs there"
        )
    return reserved


def _fits(need: Mapping[str, float], free: Mapping[str, float]) -> bool:
    return all(free.get(name, 0.0) >= amount for name, amount in need.items())


def _check_total(need: Mapping[str, float], left: Mapping[str, Mapping[str, float]]) -> None:
    for name, amount in need.items():
        total = sum(free.get(name, 0.0) for free in left.values())
        if total < amount:
            raise CannotPlace(f"a group needs {amount:g} {name}, all nodes together have {total:g}")


def _no_node(group: GroupSpec, need: Mapping[str, float], nodes: Sequence[Node], num_groups: int) -> str:
    size = group.rank.world_size
    for name, amount in need.items():
        largest = max((node.resources.get(name, 0.0) for node in nodes), default=0.0)
        if largest < amount:
            return f"{size} ranks on one host need {amount:g} {name}, the largest node has {largest:g}"
    return f"{num_groups} groups of {size} ranks do not fit: each needs {dict(need)} on one node"
