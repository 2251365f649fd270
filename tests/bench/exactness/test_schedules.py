"""Random schedules: drawn again by their seed, within bounds, and carried out against ranks that can be spoilt."""

from collections import Counter
from dataclasses import replace

import pytest

from bench.exactness.bank import SoloBook, make_bank, submission_of
from bench.exactness.outcome import Outcome
from bench.exactness.ranks import ExactRanks
from bench.exactness.run_schedule import run_schedule
from bench.exactness.schedule import Act, Asked, Bounds, Deed, Schedule, draw_schedule
from bench.shared_ranks import SharedRanks
from kv import pages_for
from scheduler.engine.config import EngineConfig
from tests.fakes import FakeExecutor, FakeRanks, solo_run

PAGE = 4
VOCAB = 1000
BANK = make_bank(size=6, prompt_tokens=(2, 20), vocab_size=VOCAB)
BOUNDS = Bounds(
    prompt_lengths=tuple(len(entry.prompt) for entry in BANK),
    max_answer=24,
    num_pages=200,
    arena_pages=200,
    page_size=PAGE,
    max_step_tokens=128,
)
LIMITS = EngineConfig(
    group_id="g",
    num_pages=200,
    arena_pages=200,
    page_size=PAGE,
    max_running=16,
    max_step_tokens=128,
    max_model_len=64,
)


class WrongAfter(FakeRanks):
    """From its n-th sampled token on, every sample is wrong."""

    countdown = 10**9

    def _sample(self, seq_id: int) -> int:
        self.countdown -= 1
        token = super()._sample(seq_id)
        if self.countdown < 0:
            self.mirrors[seq_id].tokens[-1] = token = (token + 1) % VOCAB
        return token


def exact_ranks() -> tuple[ExactRanks, WrongAfter]:
    fake = WrongAfter(num_pages=200, arena_pages=200, page_size=PAGE, vocab=VOCAB)
    return ExactRanks(ranks=SharedRanks(FakeExecutor(fake)), limits=LIMITS), fake


def plain(schedule: Schedule) -> Schedule:
    """Without spoilt bytes, for which there is no file here."""
    return replace(schedule, acts=tuple(act for act in schedule.acts if act.deed is not Deed.SPOIL))


@pytest.mark.parametrize("seed", range(30))
def test_a_schedule_lies_within_its_bounds_and_every_request_fits_alone(seed: int) -> None:
    schedule = draw_schedule(seed, BOUNDS)
    assert schedule == draw_schedule(seed, BOUNDS)
    assert 1 <= schedule.num_pages <= 200 and 0 <= schedule.arena_pages <= 200
    assert schedule.max_running <= schedule.max_step_tokens <= 128
    for asked in schedule.asked:
        tokens = BOUNDS.prompt_lengths[asked.bank] + asked.max_tokens
        assert asked.n <= schedule.max_running
        assert asked.n * pages_for(tokens, PAGE) <= schedule.num_pages
    assert all(act.target < len(schedule.asked) for act in schedule.acts)
    assert [act.after_tokens for act in schedule.acts] == sorted(act.after_tokens for act in schedule.acts)
    if not schedule.recompute:
        assert not {Deed.FAIL, Deed.SPOIL} & {act.deed for act in schedule.acts}


def test_schedules_together_do_everything() -> None:
    schedules = [draw_schedule(seed, BOUNDS) for seed in range(60)]
    assert {act.deed for schedule in schedules for act in schedule.acts} == set(Deed)
    assert {schedule.recompute for schedule in schedules} == {True, False}
    assert any(asked.n > 1 for schedule in schedules for asked in schedule.asked)
    assert {schedule.max_step_tokens for schedule in schedules} >= {16, 48, 128}
    assert any(schedule.arena_pages == 0 for schedule in schedules)


async def test_every_stream_of_many_schedules_is_what_it_is_alone() -> None:
    ranks, _ = exact_ranks()
    book = SoloBook(BANK, BOUNDS.max_answer, ranks.solo)
    total = Outcome()
    for seed in range(12):
        total.add(await run_schedule(ranks, plain(draw_schedule(seed, BOUNDS)), BANK, book))
    assert total.differing == []
    assert total.num_streams >= 12 * 3
    done = {deed for deed, count in total.deeds.items() if count}
    assert done >= {"parked by copy", "parked by recompute", "parked by order", "families", "copies failed"}


async def test_the_solo_book_has_what_a_request_generates_alone_and_runs_each_once() -> None:
    ranks, fake = exact_ranks()
    book = SoloBook(BANK, 8, ranks.solo)
    entry = BANK[2]
    expected = solo_run(entry.prompt, entry.sampling.seed + 1, VOCAB, 8)
    assert await book.tokens(2, 1, 8) == expected
    num_plans = len(fake.plans)
    assert await book.tokens(2, 1, 5) == expected[:5]
    assert (book.num_runs, len(fake.plans)) == (1, num_plans)


async def test_a_wrong_token_is_found_and_its_place_is_told() -> None:
    ranks, fake = exact_ranks()
    book = SoloBook(BANK, 12, ranks.solo)
    await book.tokens(0, 0, 12)
    fake.countdown = 4
    schedule = Schedule(
        seed=7,
        num_pages=100,
        arena_pages=0,
        max_step_tokens=64,
        max_running=4,
        max_inflight=1,
        recompute=True,
        asked=(Asked(bank=0, max_tokens=12, n=1, priority=0, after_tokens=0),),
        acts=(),
    )
    outcome = await run_schedule(ranks, schedule, BANK, book)
    assert outcome.differing == ["schedule 7, request 0, choice 0: differs at token 4 of 12"]


async def test_a_cancelled_request_is_compared_as_far_as_it_came() -> None:
    ranks, _ = exact_ranks()
    book = SoloBook(BANK, 24, ranks.solo)
    asked = Asked(bank=1, max_tokens=24, n=1, priority=0, after_tokens=0)
    schedule = replace(
        plain(draw_schedule(0, BOUNDS)),
        num_pages=100,
        asked=(asked, asked),
        acts=(Act(deed=Deed.CANCEL, target=0, after_tokens=5),),
    )
    outcome = await run_schedule(ranks, schedule, BANK, book)
    assert (outcome.differing, outcome.deeds["cancelled"], outcome.num_streams) == ([], 1, 2)


def test_a_bank_has_every_way_of_drawing_and_prompts_of_the_lengths_asked_for() -> None:
    assert [entry.sampling.is_greedy for entry in BANK] == [True, False, False, False, True, False]
    assert all(2 <= len(entry.prompt) <= 20 for entry in BANK)
    assert Counter(entry.sampling.has_penalties for entry in BANK)[True] == 1
    submission = submission_of(BANK[0], "r", 9, priority=3, n=2)
    assert (submission.stop.max_tokens, submission.priority, submission.n) == (9, 3, 2)
