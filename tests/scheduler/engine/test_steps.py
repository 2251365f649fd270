"""Plans of an engine with room to spare: what is computed when, with which pages, and how sequences end."""

import pytest

from scheduler.engine import PlanMismatch
from scheduler.messages import Finished, FinishReason, TokenEvent
from scheduler.plan import Chunk, PageGrant, StepPlan, StepResult
from tests.fakes import solo_run
from tests.scheduler.engine.rig import Rig, submission


def chunks(plan: StepPlan | None) -> list[tuple[int, int, int, bool]]:
    assert plan is not None
    return [(chunk.seq_id, chunk.start, chunk.num_tokens, chunk.sample) for chunk in plan.chunks]


def test_a_new_sequence_is_introduced_with_its_first_chunk() -> None:
    rig = Rig()
    sub = rig.admit("a", prompt=6)
    plan = rig.plan()
    assert plan is not None
    assert plan.step == 0
    assert [(new.seq_id, new.tokens, new.num_prompt_tokens) for new in plan.new] == [(0, sub.prompt_tokens, 6)]
    assert plan.grants == (PageGrant(seq_id=0, page_ids=(0, 1)),)
    assert plan.chunks == (Chunk(seq_id=0, start=0, num_tokens=6, sample=True),)


def test_the_next_plan_names_a_position_whose_token_is_still_in_flight() -> None:
    rig = Rig(inflight=2)
    rig.admit("a", prompt=3)
    assert chunks(rig.plan()) == [(0, 0, 3, True)]
    assert chunks(rig.plan()) == [(0, 3, 1, True)]
    assert rig.plan() is None, "two plans are in flight"
    rig.answer()
    assert chunks(rig.plan()) == [(0, 4, 1, True)]


def test_one_plan_in_flight_is_enough_when_so_configured() -> None:
    rig = Rig(inflight=1)
    rig.admit("a", prompt=3)
    assert chunks(rig.plan()) == [(0, 0, 3, True)]
    assert rig.plan() is None
    rig.answer()
    assert chunks(rig.plan()) == [(0, 3, 1, True)]


def test_decodes_go_first_and_prompts_share_what_is_left_oldest_first() -> None:
    rig = Rig(step_tokens=8, pages=40)
    rig.admit("a", prompt=2)
    rig.turn()
    rig.answer()
    rig.admit("b", prompt=10)
    rig.admit("c", prompt=10)
    assert chunks(rig.plan()) == [(0, 3, 1, True), (1, 0, 7, False)]
    assert chunks(rig.plan()) == [(0, 4, 1, True), (1, 7, 3, True), (2, 0, 4, False)]
    rig.answer()
    assert chunks(rig.plan()) == [(0, 5, 1, True), (1, 10, 1, True), (2, 4, 6, True)]


def test_a_page_is_granted_only_when_a_chunk_crosses_its_border() -> None:
    rig = Rig(page_size=4, inflight=1)
    rig.admit("a", prompt=3)
    granted = []
    for _ in range(6):
        plan = rig.plan()
        assert plan is not None
        granted.append([grant.page_ids for grant in plan.grants])
        rig.answer()
    assert granted == [[(0,)], [], [(1,)], [], [], []]


@pytest.mark.parametrize("inflight", [1, 2])
def test_a_sequence_says_what_it_would_say_alone_and_gives_everything_back(inflight: int) -> None:
    rig = Rig(inflight=inflight, step_tokens=8)
    for name, prompt, length in (("a", 5, 9), ("b", 1, 4), ("c", 11, 1)):
        rig.admit(name, prompt, length, seed=prompt)
    rig.settle()
    for name in "abc":
        assert rig.tokens(name) == rig.solo(name)
        assert rig.finish(name) is FinishReason.LENGTH
        assert [event.reason for event in rig.of(Finished, name)] == [FinishReason.LENGTH]
    assert rig.core.is_idle and rig.free == (16, 64)
    assert rig.ranks.mirrors == {}, "the ranks were told to forget"


@pytest.mark.parametrize("inflight", [1, 2])
def test_no_step_is_computed_beyond_max_tokens(inflight: int) -> None:
    rig = Rig(inflight=inflight)
    rig.admit("a", prompt=4, max_tokens=3)
    rig.settle()
    assert [chunks(plan) for plan in rig.ranks.plans if plan.chunks] == [
        [(0, 0, 4, True)],
        [(0, 4, 1, True)],
        [(0, 5, 1, True)],
    ]


def find_stop(prompt: tuple[int, ...], vocab: int, at: int) -> int:
    """The token that greedy generation brings at index `at`, if it is new there."""
    tokens = solo_run(prompt, 0, vocab, at + 1)
    assert tokens[at] not in tokens[:at]
    return tokens[at]


def test_a_stop_token_ends_the_stream_and_the_surplus_step_is_discarded() -> None:
    rig = Rig(inflight=2)
    stop = find_stop(submission("a").prompt_tokens, 1000, at=3)
    rig.admit("a", stop_ids=(stop,), max_tokens=50)
    for _ in range(4):
        rig.turn()
    assert rig.finish("a") is FinishReason.STOP
    assert rig.tokens("a") == rig.solo("a") and len(rig.tokens("a")) == 3, "the stop token isn't handed out"
    assert rig.of(Finished) == [], "a plan in flight still uses its pages"
    assert rig.core.account().residents == () and rig.free[0] == 14
    rig.settle()
    assert [event.reason for event in rig.of(Finished)] == [FinishReason.STOP]
    assert rig.of(Finished)[0].load.pages_free == 16
    assert [len(event.tokens) for event in rig.said["a"]] == [1, 1, 1, 0]


def test_ignore_eos_reads_on_past_a_stop_token() -> None:
    rig = Rig()
    stop = find_stop(submission("a").prompt_tokens, 1000, at=2)
    rig.admit("a", stop_ids=(stop,), max_tokens=6, ignore_eos=True)
    rig.settle()
    assert rig.tokens("a") == rig.solo("a", 6) and stop in rig.tokens("a")
    assert rig.finish("a") is FinishReason.LENGTH


def test_the_models_length_ends_a_stream() -> None:
    rig = Rig(model_len=10)
    rig.admit("a", prompt=4, max_tokens=100)
    rig.settle()
    assert len(rig.tokens("a")) == 6
    assert rig.finish("a") is FinishReason.LENGTH


def test_alone_a_stream_may_fill_the_whole_pool_and_ends_there_with_length() -> None:
    rig = Rig(pages=3, page_size=4)
    rig.admit("a", prompt=5, max_tokens=100)
    rig.settle()
    assert rig.tokens("a") == rig.solo("a", 8), "12 slots, and the last token needs none"
    assert rig.finish("a") is FinishReason.LENGTH
    assert rig.core.is_idle and rig.free[0] == 3


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        (0, "the prompt is empty; at least 1 token is needed"),
        (40, "the prompt has 40 tokens; the limit is 40 with 1 generated token"),
        (33, "the prompt has 33 tokens; the KV pool holds 32"),
    ],
)
def test_a_prompt_that_never_fits_ends_with_both_numbers_and_harms_nobody(prompt: int, error: str) -> None:
    rig = Rig(pages=8, page_size=4, model_len=40)
    rig.admit("good")
    rig.admit("bad", prompt=prompt)
    rig.settle()
    assert [(event.finish, event.error) for event in rig.said["bad"]] == [(FinishReason.ERROR, error)]
    assert [(event.reason, event.error) for event in rig.of(Finished, "bad")] == [(FinishReason.ERROR, error)]
    assert rig.tokens("good") == rig.solo("good")


def test_tokens_go_to_the_gateway_that_sent_the_request() -> None:
    rig = Rig(inflight=1)
    rig.admit("a", max_tokens=1)
    rig.plan()
    rig.core.apply(rig.ranks.answer(), 0.0)
    assert rig.core.take_tokens() == {
        "gateway": [TokenEvent(request_id="a", tokens=tuple(rig.solo("a")), finish=FinishReason.LENGTH)]
    }
    assert rig.core.take_tokens() == {}


def test_an_answer_to_no_plan_is_refused() -> None:
    rig = Rig()
    with pytest.raises(PlanMismatch, match="answered step 0; the oldest plan in flight is None"):
        rig.core.apply(StepResult(step=0), 0.0)
    rig.admit("a")
    rig.plan()
    with pytest.raises(PlanMismatch, match="answered step 1; the oldest plan in flight is 0"):
        rig.core.apply(StepResult(step=1), 0.0)


@pytest.mark.parametrize("tokens", [(), ((5, 1),), ((0, 1), (0, 2))])
def test_an_answer_with_other_tokens_than_asked_for_is_refused(tokens: tuple[tuple[int, int], ...]) -> None:
    rig = Rig()
    rig.admit("a")
    rig.plan()
    with pytest.raises(PlanMismatch, match="step 0: "):
        rig.core.apply(StepResult(step=0, tokens=tokens), 0.0)
