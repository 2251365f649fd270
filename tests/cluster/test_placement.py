"""What cannot be placed is refused at once, with what is needed and what there is."""

import pytest

from cluster.cluster_spec import ClusterSpec
from cluster.errors import CannotPlace
from cluster.placement import Node, choose_nodes
from workers.spec import CollectiveSpec, RankSpec


def cluster(world_size: int, num_groups: int = 1, device: str = "cpu", links: str = "unix") -> ClusterSpec:
    rank = RankSpec(
        model_dir="/m",
        rank=0,
        world_size=world_size,
        collective=CollectiveSpec(kind="shm"),
        num_pages=8,
        arena_pages=4,
        device=device,
    )
    return ClusterSpec(cluster_id="t", rank=rank, num_groups=num_groups, links=links)


SMALL, LARGE = Node("small", {"CPU": 1.0}), Node("large", {"CPU": 4.0, "GPU": 1.0})


def test_a_group_on_one_host_takes_the_first_node_that_holds_it_and_groups_share_what_is_left() -> None:
    assert choose_nodes(cluster(2, num_groups=2).groups(), [SMALL, LARGE]) == ["large", "large"]
    assert choose_nodes(cluster(1, num_groups=2).groups(), [SMALL, LARGE]) == ["small", "large"]


def test_groups_that_may_spread_are_bound_to_no_node() -> None:
    assert choose_nodes(cluster(5, links="tcp").groups(), [SMALL, LARGE]) == [None]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (cluster(5), "5 ranks on one host need 5 CPU, the largest node has 4"),
        (cluster(2, device="cuda"), "2 ranks on one host need 2 GPU, the largest node has 1"),
        (cluster(3, num_groups=2), "2 groups of 3 ranks do not fit"),
        (cluster(6, links="tcp"), "a group needs 6 CPU, all nodes together have 5"),
    ],
)
def test_a_group_that_fits_nowhere_is_refused_with_both_numbers(spec: ClusterSpec, message: str) -> None:
    with pytest.raises(CannotPlace, match=message):
        choose_nodes(spec.groups(), [SMALL, LARGE])
