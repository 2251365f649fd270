"""Commands from admission: their order, their doubles, and those that name nobody."""

from scheduler.messages import Admit, Cancel, Deferred, Finished, FinishReason, Progress, ResidentLoad
from tests.scheduler.engine.rig import Rig, submission


def test_commands_are_carried_out_in_number_order_however_they_come() -> None:
    rig = Rig()
    rig.core.post(Cancel(number=2, request_id="a"))
    rig.plan()
    assert rig.core.account().last_command == 0
    rig.core.post(Cancel(number=4, request_id="x"))
    rig.core.post(Admit(number=1, submission=submission("a")))
    rig.plan()
    assert rig.core.account().last_command == 2
    assert rig.finish("a") is FinishReason.CANCELLED
    rig.core.post(Cancel(number=3, request_id="y"))
    rig.plan()
    assert rig.core.account().last_command == 4


def test_a_command_that_comes_twice_is_carried_out_once() -> None:
    rig = Rig(inflight=1)
    admit = Admit(number=1, submission=submission("a", max_tokens=1))
    rig.core.post(admit)
    rig.core.post(admit)
    rig.settle()
    rig.core.post(admit)
    rig.settle()
    assert len(rig.of(Finished)) == 1 and rig.core.account().last_command == 1


def test_orders_for_unknown_and_ended_requests_do_nothing_but_count() -> None:
    rig = Rig()
    rig.admit("a", max_tokens=2)
    rig.settle()
    said, events = len(rig.said["a"]), len(rig.events)
    for request_id in ("a", "nobody"):
        rig.park(request_id)
        rig.restore(request_id)
        rig.cancel(request_id)
        rig.fail(request_id, "no")
    rig.settle()
    assert rig.core.account().last_command == 9
    assert (len(rig.said["a"]), len(rig.events), "nobody" in rig.said) == (said, events, False)


def test_an_order_for_a_request_whose_last_plan_is_still_in_flight_does_nothing() -> None:
    rig = Rig()
    rig.admit("a", max_tokens=50)
    rig.plan_all()
    rig.cancel("a")
    rig.cancel("a")
    rig.park("a")
    rig.restore("a")
    rig.settle()
    assert [event.reason for event in rig.of(Finished)] == [FinishReason.CANCELLED]
    assert rig.finish("a") is FinishReason.CANCELLED


def test_the_same_request_admitted_twice_runs_once() -> None:
    rig = Rig()
    rig.admit("a", max_tokens=3)
    rig.post(Admit, submission=submission("a", max_tokens=3))
    rig.settle()
    assert rig.tokens("a") == rig.solo("a") and len(rig.of(Finished)) == 1


def test_a_full_house_defers_an_admission() -> None:
    rig = Rig(running=2, step_tokens=8)
    for name in "abc":
        rig.admit(name)
    rig.plan()
    assert [event.request_id for event in rig.of(Deferred)] == ["c"]
    assert [one.request_id for one in rig.core.account().residents] == ["a", "b"]


def test_what_residents_still_need_for_their_prompts_is_not_given_to_another() -> None:
    rig = Rig(pages=8, page_size=4, step_tokens=8)
    rig.admit("a", prompt=16, max_tokens=2)  # claims 5 of 8 pages, holds 2 after its first chunk
    rig.plan()
    assert rig.free[0] == 6
    rig.admit("b", prompt=9, max_tokens=20)  # wants 3 and the margin
    rig.admit("c", prompt=4, max_tokens=4)  # wants 2 and its last token needs no more
    rig.plan()
    assert [event.request_id for event in rig.of(Deferred)] == ["b"]


def test_a_prompt_as_big_as_the_pool_is_admitted_when_it_is_alone() -> None:
    rig = Rig(pages=4, page_size=4)
    rig.admit("a", prompt=16, max_tokens=5)
    rig.settle()
    assert rig.of(Deferred) == []
    assert rig.tokens("a") == rig.solo("a", 1)


def test_a_failed_request_ends_with_the_words_it_was_given() -> None:
    rig = Rig()
    rig.admit("a", max_tokens=50)
    rig.turn()
    rig.fail("a", "the operator said so")
    rig.settle()
    assert (rig.said["a"][-1].finish, rig.said["a"][-1].error) == (FinishReason.ERROR, "the operator said so")
    assert [(event.reason, event.error) for event in rig.of(Finished)] == [(FinishReason.ERROR, "the operator said so")]


def test_an_account_counts_every_resident_and_everything_free() -> None:
    rig = Rig(inflight=1)
    rig.admit("a", prompt=5, max_tokens=50)
    rig.turn()
    load = rig.core.account()
    assert (load.group_id, load.last_command) == ("group", 1)
    assert (load.pages_total, load.pages_free, load.arena_total, load.arena_free) == (16, 14, 64, 64)
    assert load.residents == (ResidentLoad(request_id="a", num_tokens=6, seats=1, num_pages=2, pages_to_hold=2),)


def test_progress_is_told_when_pages_change_but_not_more_often_than_every_quarter_second() -> None:
    rig = Rig(pages=64, page_size=1, inflight=1)
    rig.admit("a", prompt=1, max_tokens=60)
    for _ in range(52):
        rig.turn()  # 0.01 s each
    told = rig.of(Progress)
    assert [event.load.pages_free for event in told] == [63, 38, 13]


def test_an_engine_with_nothing_to_do_says_nothing() -> None:
    rig = Rig()
    for _ in range(100):
        rig.turn()
    assert (rig.events, rig.said, rig.ranks.plans, rig.core.wake_at) == ([], {}, [], None)
