"""Who holds what: exact tables for the cases that matter, and what holds for every dealing."""

from dataclasses import replace

import pytest

from workers.errors import CannotPartition
from workers.model.config import ModelConfig
from workers.model.partition import Partition, Span, partition
from workers.model.rope_config import RopeConfig

SMOLLM2 = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    rms_eps=1e-5,
    rope=RopeConfig(kind="default", theta=100000.0, original_positions=8192),
    max_positions=8192,
    tied_embeddings=True,
    qkv_bias=False,
    o_bias=False,
    mlp_bias=False,
    qk_norm=False,
    eos_token_ids=(2,),
)


def heads(num_heads: int, num_kv_heads: int) -> ModelConfig:
    return replace(SMOLLM2, num_heads=num_heads, num_kv_heads=num_kv_heads, hidden_size=64 * num_heads)


def dealt(parts: tuple[Partition, ...]) -> list[tuple[int, int]]:
    """(query heads, KV heads) of each rank."""
    return [(part.query_heads.size, part.kv_heads.size) for part in parts]


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "world_size", "expected"),
    [
        (9, 3, 1, [(9, 3)]),
        (9, 3, 2, [(6, 2), (3, 1)]),
        (9, 3, 3, [(3, 1), (3, 1), (3, 1)]),
        (9, 3, 4, [(2, 1), (1, 1), (3, 1), (3, 1)]),
        (9, 3, 9, [(1, 1)] * 9),
        (15, 5, 2, [(9, 3), (6, 2)]),
        (15, 5, 4, [(6, 2), (3, 1), (3, 1), (3, 1)]),
        (5, 1, 2, [(3, 1), (2, 1)]),
        (5, 1, 5, [(1, 1)] * 5),
        (32, 8, 3, [(12, 3), (12, 3), (8, 2)]),
        (32, 8, 8, [(4, 1)] * 8),
    ],
)
def test_kv_head_groups_are_dealt_by_largest_remainder(
    num_heads: int, num_kv_heads: int, world_size: int, expected: list[tuple[int, int]]
) -> None:
    assert dealt(partition(heads(num_heads, num_kv_heads), world_size)) == expected


def test_smollm2_on_two_ranks() -> None:
    first, second = partition(SMOLLM2, 2)
    assert (first.query_heads, first.kv_heads) == (Span(start=0, end=6), Span(start=0, end=2))
    assert (second.query_heads, second.kv_heads) == (Span(start=6, end=9), Span(start=2, end=3))
    assert (first.mlp, second.mlp) == (Span(start=0, end=768), Span(start=768, end=1536))
    assert (first.vocab, second.vocab) == (Span(start=0, end=24576), Span(start=24576, end=49152))


def test_a_replicated_kv_head_serves_only_its_own_query_heads() -> None:
    for part in partition(heads(9, 3), 7):
        assert part.kv_heads.size == 1
        assert part.query_heads.start // 3 == part.kv_heads.start == (part.query_heads.end - 1) // 3


@pytest.mark.parametrize("world_size", range(1, 10))
def test_every_range_is_covered_once_in_rank_order(world_size: int) -> None:
    odd = replace(SMOLLM2, intermediate_size=1541, vocab_size=1009)
    for config in (SMOLLM2, odd):
        parts = partition(config, world_size)
        for ranges, size in (
            ([part.query_heads for part in parts], config.num_heads),
            ([part.mlp for part in parts], config.intermediate_size),
            ([part.vocab for part in parts], config.vocab_size),
        ):
            assert [span.start for span in ranges] == [0, *(span.end for span in ranges[:-1])]
            assert ranges[-1].end == size
            assert min(span.size for span in ranges) > 0
        assert all(part.mlp.size % 16 == part.vocab.size % 16 == 0 for part in parts[:-1])


@pytest.mark.parametrize("world_size", [2, 4, 5])
def test_ranks_with_unequal_heads_still_share_the_mlp_evenly(world_size: int) -> None:
    columns = [part.mlp.size for part in partition(SMOLLM2, world_size)]
    assert max(columns) - min(columns) <= 16


@pytest.mark.parametrize("world_size", [0, 10])
def test_more_ranks_than_query_heads_are_refused_with_the_bound(world_size: int) -> None:
    with pytest.raises(CannotPartition, match=f"{world_size} is not between 1 and 9"):
        partition(SMOLLM2, world_size)
