"""The sampler over ranks: one exchange, the same token everywhere, and a row that does not feel its company."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from scheduler.sampling import SamplingParams
from tests.workers.rank_group import GREEDY
from tests.workers.test_partition import SMOLLM2
from tests.workers.thread_collective import thread_collectives
from workers.model.partition import partition
from workers.ops.torch_ops import TorchOps
from workers.sampler import Draw, Sampler
from workers.token_counts import TokenCounts

Float32 = npt.NDArray[np.float32]

VOCAB = 1000
CONFIG = replace(SMOLLM2, vocab_size=VOCAB)


def sample(logits: Float32, draws: Sequence[Draw], world_size: int = 1) -> list[int]:
    """Every rank's tokens, which must be equal, by exactly one collective (none but for others' sake)."""
    parts, collectives = partition(CONFIG, world_size), thread_collectives(world_size)
    ops = TorchOps("cpu", torch.float32)

    def on_rank(rank: int) -> list[int]:
        vocab = parts[rank].vocab
        share = torch.from_numpy(logits[:, vocab.start : vocab.end].copy())
        return Sampler(parts, rank, ops, collectives[rank]).sample(share, draws)

    with ThreadPoolExecutor(world_size) as threads:
        answers = list(threads.map(on_rank, range(world_size)))
    assert answers == [answers[0]] * world_size
    assert [collective.num_calls for collective in collectives] == [int(world_size > 1)] * world_size
    return answers[0]


def rows(count: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(0, 3, (count, VOCAB)).astype(np.float32)


def mixed_draws() -> list[Draw]:
    counts = TokenCounts([1, 2, 3], [4, 4])
    return [
        Draw(params=GREEDY, position=5),
        Draw(params=SamplingParams(seed=11), position=17),
        Draw(params=replace(GREEDY, logit_bias=((77, 50.0),)), position=3),
        Draw(params=SamplingParams(seed=12, top_k=20, temperature=0.7), position=9),
        Draw(params=SamplingParams(seed=12, top_p=0.8, repetition_penalty=1.2), position=9, counts=counts),
        Draw(params=replace(GREEDY, presence_penalty=1.0), position=9, counts=counts),
        Draw(params=SamplingParams(seed=13, min_p=0.1), position=1),
    ]


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_any_number_of_ranks_draws_the_tokens_of_one(world_size: int) -> None:
    logits, draws = rows(7), mixed_draws()
    alone = sample(logits, draws)
    assert sample(logits, draws, world_size) == alone
    assert alone[2] == 77


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_row_draws_the_same_alone_and_in_any_company(world_size: int) -> None:
    logits, draws = rows(7), mixed_draws()
    together = sample(logits, draws, world_size)
    order = np.random.default_rng(2).permutation(7)
    shuffled = sample(logits[order], [draws[row] for row in order], world_size)
    assert shuffled == [together[row] for row in order]
    for row in range(7):
        assert sample(logits[row : row + 1], draws[row : row + 1], world_size) == [together[row]]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_the_lowest_token_wins_a_tie_within_and_across_ranks(world_size: int) -> None:
    logits = np.zeros((3, VOCAB), dtype=np.float32)
    logits[1, [400, 401, 900]] = 2.0
    logits[2, [999, 350]] = 2.0
    assert sample(logits, [Draw(params=GREEDY, position=1)] * 3, world_size) == [0, 400, 350]


def test_greedy_rows_exchange_three_numbers_each_and_no_logits() -> None:
    sent: list[int] = []
    parts, collectives = partition(CONFIG, 2), thread_collectives(2)

    def on_rank(rank: int) -> list[int]:
        gather = collectives[rank].all_gather

        def counted(x: torch.Tensor, out: torch.Tensor) -> None:
            sent.append(x.numel())
            gather(x, out)

        collectives[rank].all_gather = counted  # type: ignore[method-assign]
        vocab = parts[rank].vocab
        share = torch.from_numpy(rows(4)[:, vocab.start : vocab.end].copy())
        ops = TorchOps("cpu", torch.float32)
        return Sampler(parts, rank, ops, collectives[rank]).sample(share, [Draw(params=GREEDY, position=1)] * 4)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(on_rank, range(2))) == [rows(4).argmax(axis=1).tolist()] * 2
    assert sent == [12, 12]


def test_top_k_of_one_equals_greedy() -> None:
    logits = rows(20, seed=4)
    draws = [Draw(params=SamplingParams(top_k=1, seed=row), position=row) for row in range(20)]
    assert sample(logits, draws) == logits.argmax(axis=1).tolist()


def test_seed_and_position_decide_and_nothing_else() -> None:
    logits = np.repeat(rows(1), 64, axis=0)
    params = SamplingParams(temperature=2.0, seed=42)
    by_position = sample(logits, [Draw(params=params, position=position) for position in range(64)])
    assert by_position == sample(logits, [Draw(params=params, position=position) for position in range(64)])
    assert len(set(by_position)) > 20
    assert len(set(sample(logits, [Draw(params=params, position=5)] * 64))) == 1


def test_draws_over_positions_follow_the_distribution() -> None:
    """Chi-square over the ten likeliest tokens and the rest, 5,000 draws of a fixed seed."""
    logits = rows(1, seed=9)
    weights = np.exp(logits[0].astype(np.float64) - logits.max())
    probabilities = weights / weights.sum()
    params, num_draws = SamplingParams(seed=2024), 5000
    drawn: list[int] = []
    for start in range(0, num_draws, 500):
        draws = [Draw(params=params, position=start + offset) for offset in range(500)]
        drawn += sample(np.repeat(logits, 500, axis=0), draws)
    top = np.argsort(-probabilities)[:10]
    seen = np.array([drawn.count(token) for token in top] + [sum(token not in top for token in drawn)])
    expected = np.append(probabilities[top], 1 - probabilities[top].sum()) * num_draws
    assert float(((seen - expected) ** 2 / expected).sum()) < 29.6  # 10 degrees of freedom, one in a thousand


def test_no_rows_need_no_exchange() -> None:
    collective = thread_collectives(1)[0]
    sampler = Sampler(partition(CONFIG, 1), 0, TorchOps("cpu", torch.float32), collective)
    assert sampler.sample(torch.empty(0, VOCAB), []) == []
    assert collective.num_calls == 0
