"""Who waits for a request is woken by it alone, and the number of those who wait is bounded."""

import asyncio

from cluster.waits import Waits


async def test_a_caller_sleeps_through_what_does_not_settle_it_and_through_other_requests() -> None:
    waits, state, looks = Waits(), {"a": "parking"}, []

    def settled() -> bool:
        looks.append(state["a"])
        return state["a"] == "parked"

    caller = asyncio.create_task(waits.until("a", settled, 20.0))
    await asyncio.sleep(0)
    waits.wake("b")
    await asyncio.sleep(0)
    waits.wake("a")
    await asyncio.sleep(0)
    assert not caller.done()
    state["a"] = "parked"
    waits.wake("a")
    await asyncio.wait_for(caller, 5)
    assert looks[-1] == "parked"
    assert looks.count("parking") <= 3  # at the start, and at the one wake that changed nothing
    assert waits._changes == {}


async def test_two_callers_of_one_request_are_woken_together() -> None:
    waits, done = Waits(), []
    callers = [asyncio.create_task(waits.until("a", lambda: bool(done), 20.0)) for _ in range(2)]
    await asyncio.sleep(0)
    done.append(True)
    waits.wake("a")
    await asyncio.wait_for(asyncio.gather(*callers), 5)


async def test_beyond_the_bound_nobody_waits() -> None:
    waits = Waits(max_waiting=1)
    first = asyncio.create_task(waits.until("a", lambda: False, 20.0))
    await asyncio.sleep(0)
    await asyncio.wait_for(waits.until("b", lambda: False, 20.0), 5)
    first.cancel()
    await asyncio.wait([first])
    assert waits._changes == {}


async def test_a_wait_is_over_at_its_bound() -> None:
    await asyncio.wait_for(Waits().until("a", lambda: False, 0.01), 5)
