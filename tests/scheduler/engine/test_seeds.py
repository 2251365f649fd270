"""Choice k of a request draws as a request of its own with seed + k would, whatever 64-bit integer the seed is."""

import pytest

from tests.scheduler.engine.rig import Rig

LEAST, GREATEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param([-2, -1, 0], id="from below zero"),
        pytest.param([-(10**6), 1 - 10**6, 2 - 10**6], id="negative"),
        pytest.param([LEAST, LEAST + 1, LEAST + 2], id="the least"),
        pytest.param([GREATEST - 1, GREATEST, LEAST], id="after the greatest comes the least"),
        pytest.param([GREATEST, LEAST, LEAST + 1], id="the greatest"),
        pytest.param([0, 1, 2], id="zero"),
    ],
)
def test_each_choice_says_what_a_request_of_its_own_with_the_next_seed_says(seeds: list[int]) -> None:
    family = Rig()
    family.admit("a", prompt=6, max_tokens=10, n=3, seed=seeds[0])
    family.settle()
    for choice, seed in enumerate(seeds):
        alone = Rig()
        alone.admit("a", prompt=6, max_tokens=10, seed=seed)
        alone.settle()
        assert len(alone.tokens("a")) == 10
        assert family.tokens("a", choice) == alone.tokens("a")


def test_the_ranks_are_told_no_seed_that_a_client_could_not_give() -> None:
    rig = Rig()
    rig.admit("a", prompt=6, max_tokens=3, n=3, seed=GREATEST)
    rig.settle()
    assert [new.sampling.seed for plan in rig.ranks.plans for new in plan.new] == [GREATEST, LEAST, LEAST + 1]
