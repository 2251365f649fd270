"""What is turned away, with which numbers; nothing of it is kept."""

import pickle

import pytest

from scheduler.admission import (
    AdmissionError,
    AdmissionPolicy,
    AdmissionRefused,
    CapacityExhausted,
    Draining,
    DuplicateRequest,
    GroupCapacity,
    NeverFits,
    NoGroup,
    OrderRefused,
    QueueFull,
    TooManyChoices,
    UnknownRequest,
    WrongState,
)
from tests.scheduler.admission.desk import PAGE, Desk


def test_a_prompt_that_fills_the_pool_to_the_last_token_leaves_no_room_for_an_answer() -> None:
    desk = Desk(pages=4)
    with pytest.raises(NeverFits) as refused:
        desk.submit("a", 4 * PAGE)
    assert (refused.value.needed_tokens, refused.value.limit_tokens) == (65, 64)
    assert str(refused.value) == (
        "the prompt has 64 tokens and needs 65 to generate one, but the KV pool is 64 tokens: send at most 63"
    )
    assert desk.live() == set()
    assert desk.submit("a", 4 * PAGE - 1) == ["admit a"]


def test_a_prompt_as_long_as_the_model_is_refused() -> None:
    desk = Desk(pages=100, max_model_len=512)
    with pytest.raises(NeverFits) as refused:
        desk.submit("a", 512)
    assert (refused.value.needed_tokens, refused.value.limit_tokens) == (513, 512)
    assert "the model's length is 512" in str(refused.value)
    assert desk.submit("a", 511) == ["admit a"]


def test_one_that_never_fits_does_not_block_the_line() -> None:
    """Case B1 and trap 3: it is refused at once and the others go on."""
    desk = Desk(pages=4, seats=1)
    desk.submit("running")
    with pytest.raises(NeverFits):
        desk.submit("huge", 10_000)
    desk.submit("next")
    assert desk.finished("running") == ["admit next"]


def test_what_fits_one_group_is_taken_though_it_never_fits_the_others() -> None:
    desk = Desk(groups=())
    desk.add_group("small", pages=4)
    desk.add_group("large", pages=40)
    assert desk.submit("a", 20 * PAGE) == ["admit a large"]
    with pytest.raises(NeverFits) as refused:
        desk.submit("b", 40 * PAGE)
    assert refused.value.limit_tokens == 40 * PAGE


def test_the_same_id_is_refused_while_the_first_lives_and_taken_afterwards() -> None:
    desk = Desk()
    desk.submit("a")
    with pytest.raises(DuplicateRequest, match="request a is alive already"):
        desk.submit("a")
    assert desk.state("a") == "resident"
    desk.finished("a")
    assert desk.submit("a") == ["admit a"]


def test_without_a_group_everything_is_refused_for_a_while() -> None:
    with pytest.raises(NoGroup) as refused:
        Desk(groups=()).submit("a")
    assert refused.value.retry_after_s == 60


def test_the_bound_on_queued_requests_is_exact() -> None:
    desk = Desk(seats=1, policy=AdmissionPolicy(max_queued_requests=2))
    for request_id in ("running", "a", "b"):
        desk.submit(request_id)
    with pytest.raises(QueueFull) as refused:
        desk.submit("c")
    assert (refused.value.waiting, refused.value.limit, refused.value.unit) == (2, 2, "requests")
    assert desk.live() == {"running", "a", "b"}
    desk.finished("running")
    assert desk.submit("c") == []


def test_the_bound_on_queued_tokens_is_exact() -> None:
    desk = Desk(seats=1, policy=AdmissionPolicy(max_queued_tokens=100))
    desk.submit("running")
    desk.submit("a", 60)
    with pytest.raises(QueueFull) as refused:
        desk.submit("b", 41)
    assert (refused.value.waiting, refused.value.limit, refused.value.unit) == (60, 100, "prompt tokens")
    assert desk.submit("c", 40) == []


def test_an_empty_queue_takes_a_prompt_beyond_its_bound_rather_than_refuse_it_for_ever() -> None:
    desk = Desk(seats=1, policy=AdmissionPolicy(max_queued_tokens=100))
    desk.submit("running")
    assert desk.submit("a", 200) == []
    with pytest.raises(QueueFull):
        desk.submit("b", 1)


def test_retry_after_follows_the_measured_drain_rate() -> None:
    desk = Desk(seats=1, policy=AdmissionPolicy(max_queued_requests=2, drain_window_s=30.0))
    for request_id in ("running", "a", "b"):
        desk.submit(request_id)
    for request_id in ("running", "a"):  # three have left the queue within the window, one in 10 s
        desk.now += 5.0
        desk.finished(request_id)
    for request_id in ("c", "d"):
        desk.submit(request_id)
    with pytest.raises(QueueFull) as refused:
        desk.submit("e")
    assert refused.value.retry_after_s == 10
    desk.now += 21.0  # the first has fallen out of the window
    with pytest.raises(QueueFull) as refused:
        desk.submit("e")
    assert refused.value.retry_after_s == 15


def test_retry_after_is_a_whole_number_between_one_second_and_the_policy_s_longest() -> None:
    desk = Desk(seats=1, policy=AdmissionPolicy(max_queued_requests=1, max_retry_after_s=45))
    desk.submit("running 0")
    for n in range(100):
        desk.submit(f"running {n + 1}")
        desk.finished(f"running {n}")
    desk.submit("a")
    with pytest.raises(QueueFull) as refused:
        desk.submit("b")
    assert refused.value.retry_after_s == 1
    desk.now += 1000.0
    with pytest.raises(QueueFull) as refused:
        desk.submit("b")
    assert refused.value.retry_after_s == 45


def test_before_anything_is_done_for_a_request_the_door_says_whether_any_would_be_taken() -> None:
    """Case 20: refused before tokenizing."""
    desk = Desk(groups=())
    with pytest.raises(NoGroup):
        desk.core.check_room(desk.now)
    desk = Desk(seats=1, policy=AdmissionPolicy(max_queued_requests=2, max_queued_tokens=100))
    desk.core.check_room(desk.now)
    desk.submit("running")
    desk.submit("a", 60)
    desk.core.check_room(desk.now)
    desk.submit("b", 40)
    with pytest.raises(QueueFull, match="2 of at most 2 requests wait"):
        desk.core.check_room(desk.now)
    desk.cancel("a")
    desk.submit("c", 60)
    desk.cancel("b")
    desk.core.check_room(desk.now)
    desk.set_priority("c", 4)
    desk.cancel("c")
    desk.submit("d", 100)
    with pytest.raises(QueueFull, match="100 of at most 100 prompt tokens wait"):
        desk.core.check_room(desk.now)


def test_while_draining_nothing_new_is_taken_and_what_lives_goes_on() -> None:
    desk = Desk(seats=1)
    desk.submit("running")
    desk.submit("queued")
    desk.submit("held")
    desk.park("held", 5.0)
    desk.core.drain(desk.now)
    desk.core.drain(desk.now)
    assert desk.core.status(desk.now).draining
    for knock in (lambda: desk.submit("new"), lambda: desk.core.check_room(desk.now)):
        with pytest.raises(Draining) as refused:
            knock()
        assert refused.value.retry_after_s == 60
    assert desk.finished("running") == ["admit queued"]
    assert desk.finished("queued") == []
    assert desk.wait(5.0) == ["admit held"]
    desk.core.undrain(desk.now)
    assert not desk.core.status(desk.now).draining
    assert desk.submit("new") == []


def test_a_priority_beyond_32_bits_is_refused() -> None:
    desk = Desk()
    desk.submit("a")
    for priority in (2**31, -(2**31) - 1):
        with pytest.raises(ValueError, match="it must fit 32 bits"):
            desk.set_priority("a", priority)
    assert desk.set_priority("a", -(2**31)) == []


@pytest.mark.parametrize(
    "error",
    [
        NeverFits(65, 64, "the KV pool"),
        NeverFits(144, 128, "the KV pool", 3),
        TooManyChoices(5, 4),
        QueueFull(2, 2, "requests", 7),
        CapacityExhausted(9),
        Draining(60),
        DuplicateRequest("a"),
        NoGroup(60),
        UnknownRequest("a"),
        WrongState("a", "ending", "it has been cancelled"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_crosses_a_process_border_whole(error: AdmissionRefused | OrderRefused) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)
    assert isinstance(copy, AdmissionError)


@pytest.mark.parametrize("field", ["promote_every", "age_step_s", "max_queued_requests", "max_retry_after_s"])
def test_a_policy_that_would_stop_all_progress_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is 0; it must be more than 0"):
        AdmissionPolicy(**{field: 0})


def test_a_negative_margin_is_refused_and_none_is_allowed() -> None:
    assert AdmissionPolicy(margin_pages=0).margin_pages == 0
    with pytest.raises(ValueError, match="margin_pages is -1; it must be 0 or more"):
        AdmissionPolicy(margin_pages=-1)


def test_a_group_without_pages_is_refused() -> None:
    with pytest.raises(ValueError, match="group g: num_pages is 0; it must be 1 or more"):
        GroupCapacity(group_id="g", num_pages=0, page_size=16, seats=1, max_model_len=10)


def test_a_group_with_a_negative_page_size_in_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="group g: page_bytes is -1; it must be 0 or more"):
        GroupCapacity(group_id="g", num_pages=1, page_size=16, seats=1, max_model_len=10, page_bytes=-1)


def test_a_group_is_not_registered_twice() -> None:
    with pytest.raises(ValueError, match="group g1 is registered already"):
        Desk().add_group("g1")
