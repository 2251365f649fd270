"""Errands of a soak: of all kinds, within bounds, the same for a seed; and what must be said alike."""

from collections import Counter

from bench.soak.errand import NUM_PROMPTS, NUM_SEEDS, WEIGHTS, Errand, Fate, SoakBounds, draw_errands
from bench.soak.texts import contradictions
from bench.soak.visitor import Visit

BOUNDS = SoakBounds(vocab_size=5000)


def errand(number: int = 0, *, seed: int = 0, prompt: tuple[int, ...] = (1, 2)) -> Errand:
    return Errand(
        number=number,
        request_id=f"soak-{number}",
        prompt=prompt,
        max_tokens=9,
        n=1,
        seed=seed,
        priority=0,
        stream=True,
        fate=Fate.LEFT_ALONE,
        after_s=0.0,
        pause_s=0.0,
    )


def test_two_thousand_errands_have_every_fate_and_lie_within_bounds() -> None:
    errands = draw_errands(2000, BOUNDS)
    assert errands == draw_errands(2000, BOUNDS)
    assert len({each.request_id for each in errands}) == 2000
    assert len({each.prompt for each in errands}) == NUM_PROMPTS
    assert {each.seed for each in errands} == set(range(NUM_SEEDS))
    fates = Counter(each.fate for each in errands)
    assert set(fates) == set(WEIGHTS)
    assert min(fates.values()) >= 40
    assert all(4 <= len(each.prompt) <= 200 and 1 <= each.max_tokens <= 120 and 1 <= each.n <= 3 for each in errands)
    assert {each.stream for each in errands} == {True, False}


def test_another_seed_asks_for_other_things() -> None:
    assert draw_errands(5, BOUNDS, 1) != draw_errands(5, BOUNDS, 2)


def test_a_body_asks_for_usage_only_where_it_streams() -> None:
    (streamed,) = [each for each in draw_errands(40, BOUNDS) if each.stream][:1]
    (whole,) = [each for each in draw_errands(40, BOUNDS) if not each.stream][:1]
    assert streamed.body("m")["stream_options"] == {"include_usage": True}
    assert "stream_options" not in whole.body("m")
    assert whole.body("m")["prompt"] == list(whole.prompt)


def visit(number: int, texts: dict[int, str], *, seed: int = 0, prompt: tuple[int, ...] = (1, 2)) -> Visit:
    return Visit(errand(number, seed=seed, prompt=prompt), texts=texts)


def test_shorter_texts_are_beginnings_of_longer_ones() -> None:
    visits = [visit(0, {0: "river stone"}), visit(1, {0: "river"}), visit(2, {0: ""}), visit(3, {0: "ri\ufffd\ufffd"})]
    assert contradictions(visits) == []


def test_a_choice_says_what_the_request_with_its_seed_says() -> None:
    family = visit(0, {0: "a", 1: "bcd"}, seed=4)
    assert contradictions([family, visit(1, {0: "bc"}, seed=5)]) == []
    assert contradictions([family, visit(1, {0: "bx"}, seed=5)]) == [
        "request 1, choice 0 does not begin as request 0, choice 1 of the same prompt and seed"
    ]


def test_other_prompts_and_seeds_may_say_anything() -> None:
    visits = [visit(0, {0: "a"}), visit(1, {0: "b"}, seed=1), visit(2, {0: "c"}, prompt=(9,))]
    assert contradictions(visits) == []
