"""What a cluster makes of its numbers: names in shared memory, the budget of a node, what admission is told."""

from dataclasses import replace

import pytest

from cluster.cluster_spec import ClusterSpec
from workers.spec import CollectiveSpec, RankSpec


def cluster(**changes: object) -> ClusterSpec:
    rank = RankSpec(
        model_dir="/m", rank=0, world_size=2, collective=CollectiveSpec(kind="shm"), num_pages=8, arena_pages=4
    )
    return replace(ClusterSpec(cluster_id="t", rank=rank, page_bytes=1000), **changes)  # type: ignore[arg-type]


def test_every_start_has_names_of_its_own_and_every_group_too() -> None:
    one, other = (ClusterSpec(cluster_id="t", rank=cluster().rank) for _ in range(2))
    assert one.instance != other.instance
    first, second = cluster(instance="ab12", num_groups=2).groups()
    assert first.rank.arena_prefix == "parkade-arena-ab12-group-0"
    assert second.rank.arena_prefix == "parkade-arena-ab12-group-1"


def test_the_groups_of_a_node_share_one_budget() -> None:
    spec = cluster(instance="ab12", num_groups=2)
    assert [(group.rank.node_budget_name, group.rank.node_budget_bytes) for group in spec.groups()] == [
        ("parkade-budget-ab12", 4000),
        ("parkade-budget-ab12", 4000),
    ]


def test_without_the_size_of_a_page_there_is_no_budget_in_bytes() -> None:
    (group,) = cluster(page_bytes=0).groups()
    assert (group.rank.arena_pages, group.rank.node_budget_name, group.rank.node_budget_bytes) == (4, "", 0)


def test_without_parking_ranks_get_no_arena_and_no_budget() -> None:
    (group,) = cluster(park=False).groups()
    assert (group.rank.arena_pages, group.engine.arena_pages, group.engine.park) == (0, 0, False)
    assert (group.rank.node_budget_name, group.capacity.park) == ("", False)


def test_parking_without_host_ram_is_recompute_alone() -> None:
    spec = cluster()
    (group,) = replace(spec, rank=replace(spec.rank, arena_pages=0)).groups()
    assert (group.engine.arena_pages, group.engine.park, group.engine.recompute) == (0, True, True)
    assert group.rank.node_budget_bytes == 0


def test_admission_is_told_the_whole_of_a_group() -> None:
    (group,) = cluster(recompute=False).groups()
    capacity = group.capacity
    assert (capacity.num_pages, capacity.page_size, capacity.seats) == (8, 16, 64)
    assert (capacity.park, capacity.recompute, capacity.page_bytes) == (True, False, 1000)


def test_a_page_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"page_bytes is -1; it must be 0 \(unknown\) or more"):
        cluster(page_bytes=-1)


def test_links_other_than_unix_and_tcp_are_refused() -> None:
    with pytest.raises(ValueError, match="links is 'udp'; choose \"unix\""):
        cluster(links="udp")
