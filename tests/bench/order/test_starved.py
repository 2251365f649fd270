"""A big chat that a stream of small ones passes: our line ends that, and a policy without its limit misses the bar."""

from dataclasses import replace

import pytest

from bench.order.chats import SimChat
from bench.order.command import FIRST_FIT, LINES, NEVER, OURS, starved_bars
from bench.order.model_ranks import CostModel
from bench.order.simulate import SimResult, simulate
from bench.order.starved import NUM_SMALL, draw_starved
from bench.streams import StreamError
from scheduler.admission import AdmissionPolicy, group_view, restore_line
from scheduler.admission.ledger import GroupLedger, Room
from scheduler.admission.request_record import RequestRecord

POOL = 8192
DECIDED = "starved: seeds in which the limit of passes decided"
WORST = "starved: longest wait over first-fit's where it decided, worst"


def run(line: str) -> SimResult:
    return simulate(draw_starved(0, POOL), POOL, LINES[line], CostModel())


def missed(ours: SimResult, first_fit: SimResult) -> list[str]:
    return [bar.name for bar in starved_bars({OURS: [ours], FIRST_FIT: [first_fit]}) if not bar.held]


@pytest.mark.parametrize("seed", range(5))
def test_the_big_one_fits_beside_two_small_ones_and_not_beside_three(seed: int) -> None:
    big, *small, filler = draw_starved(seed, POOL)
    assert len(small) == NUM_SMALL > 2 * AdmissionPolicy().max_passes
    smallest = sorted(chat.prompt_tokens for chat in small)[:3]
    assert big.prompt_tokens + sum(smallest) > 0.92 * POOL
    assert big.num_tokens <= POOL < big.prompt_tokens + filler.prompt_tokens
    backs = [chat.back_at for chat in (big, *small)]
    assert backs == sorted(backs)
    assert filler.back_at == 0


def ignores_passes(line: list[RequestRecord], ledger: GroupLedger, policy: AdmissionPolicy, room: Room) -> object:
    return restore_line.read_line(line, ledger, replace(policy, max_passes=NEVER), room)


def test_the_limit_of_passes_ends_a_wait_that_first_fit_does_not_and_a_line_that_ignores_it_misses_the_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, first_fit = run(OURS), run(FIRST_FIT)
    assert ours.num_whole == first_fit.num_whole == ours.num_chats == NUM_SMALL + 2
    assert ours.longest_wait_s < 0.9 * first_fit.longest_wait_s
    assert missed(ours, first_fit) == []
    monkeypatch.setattr(group_view, "read_line", ignores_passes)
    assert missed(run(OURS), first_fit) == [DECIDED]


def test_a_limit_that_makes_the_longest_wait_longer_misses_its_bar() -> None:
    first_fit = SimResult(makespan_s=9.0, longest_wait_s=5.0, parks=1, num_chats=1, num_whole=1)
    assert missed(replace(first_fit, longest_wait_s=5.1), first_fit) == [WORST]
    assert missed(replace(first_fit, longest_wait_s=4.0), first_fit) == []


def test_a_chat_that_is_wanted_back_before_it_could_be_held_is_an_error() -> None:
    late = SimChat(prompt_tokens=1000, answer_tokens=9, at=0.0, back_at=0.1)
    with pytest.raises(StreamError, match="wanted back at"):
        simulate([late], POOL, AdmissionPolicy(), CostModel())
