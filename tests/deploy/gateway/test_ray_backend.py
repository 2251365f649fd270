"""Batches of several engines into the streams of their requests; connections and admission are played by hand."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from cluster.errors import ClusterFailed
from deploy.errors import BackendLost
from deploy.gateway.ray_backend import RayBackend
from scheduler.admission import DuplicateRequest, HoldTerms, NoGroup, QueueFull, UnknownRequest
from scheduler.messages import FinishReason, Submission, TokenEvent
from scheduler.sampling import SamplingParams, StopRules
from tests.deploy.gateway.fakes import request_row
from tests.deploy.gateway.played_admission import HandPlayedAdmission, Wire


def submission(request_id: str, n: int = 1) -> Submission:
    return Submission(
        request_id=request_id,
        n=n,
        gateway_id="g",
        prompt_tokens=(1,),
        sampling=SamplingParams(),
        stop=StopRules(max_tokens=5),
    )


def event(request_id: str, *tokens: int, choice: int = 0, finish: FinishReason | None = None) -> TokenEvent:
    return TokenEvent(request_id=request_id, choice=choice, tokens=tokens, finish=finish)


@pytest.fixture
async def wires() -> dict[str, Wire]:
    return {"group-0": Wire(), "group-1": Wire()}


@pytest.fixture
async def admission() -> HandPlayedAdmission:
    return HandPlayedAdmission()


@pytest.fixture
async def backend(wires: dict[str, Wire], admission: HandPlayedAdmission) -> AsyncIterator[RayBackend]:
    backend = RayBackend("g", admission, wires)
    backend.start()
    await asyncio.sleep(0)
    yield backend
    await backend.stop()
    assert backend.num_open == 0


async def collect(backend: RayBackend, request_id: str) -> list[Sequence[TokenEvent]]:
    return [list(events) async for events in backend.events(request_id, None)]


async def test_each_request_gets_its_own_events_in_order(backend: RayBackend, wires: dict[str, Wire]) -> None:
    for name in ("a", "b"):
        await backend.submit(submission(name))
    wires["group-0"].batches.put_nowait([event("a", 1), event("b", 2), event("a", 3)])
    wires["group-0"].batches.put_nowait([event("b", 4, finish=FinishReason.STOP)])
    wires["group-0"].batches.put_nowait([event("a", finish=FinishReason.LENGTH)])
    a, b = await asyncio.gather(collect(backend, "a"), collect(backend, "b"))
    assert [item for batch in a for item in batch] == [
        event("a", 1),
        event("a", 3),
        event("a", finish=FinishReason.LENGTH),
    ]
    assert [item for batch in b for item in batch] == [event("b", 2), event("b", 4, finish=FinishReason.STOP)]


async def test_what_has_piled_up_comes_as_one_batch(backend: RayBackend, wires: dict[str, Wire]) -> None:
    await backend.submit(submission("a"))
    for token in range(3):
        wires["group-0"].batches.put_nowait([event("a", token)])
    wires["group-0"].batches.put_nowait([event("a", finish=FinishReason.STOP)])
    await backend.submit(submission("b"))
    wires["group-0"].batches.put_nowait([event("b", finish=FinishReason.STOP)])
    await collect(backend, "b")  # the pump has passed all that came before
    assert len(await collect(backend, "a")) == 1


async def test_late_events_of_a_cancelled_request_are_dropped(
    backend: RayBackend, wires: dict[str, Wire], admission: HandPlayedAdmission
) -> None:
    await backend.submit(submission("a"))
    await backend.cancel("a")
    await backend.cancel("a")
    await backend.submit(submission("b"))
    wires["group-0"].batches.put_nowait([event("a", 1), event("b", finish=FinishReason.STOP)])
    assert await collect(backend, "b") == [[event("b", finish=FinishReason.STOP)]]
    assert admission.cancelled == ["a", "a"]


async def test_a_refused_request_leaves_nothing(backend: RayBackend, admission: HandPlayedAdmission) -> None:
    admission.refusal = NoGroup(1)
    for _ in range(2):  # its id is as good as new
        with pytest.raises(NoGroup):
            await backend.submit(submission("a"))
    assert backend.num_open == 0
    await backend.cancel("a")
    assert admission.cancelled == []


async def test_a_family_ends_with_its_last_choice(backend: RayBackend, wires: dict[str, Wire]) -> None:
    await backend.submit(submission("a", n=3))
    ends = [event("a", choice=choice, finish=FinishReason.STOP) for choice in (1, 0, 2)]
    reading = asyncio.ensure_future(collect(backend, "a"))
    for end in ends:
        wires["group-0"].batches.put_nowait([end])
        await asyncio.sleep(0)
    assert [item for batch in await reading for item in batch] == ends


async def test_a_lost_connection_ends_each_choice_that_has_not_ended(
    backend: RayBackend, wires: dict[str, Wire]
) -> None:
    await backend.submit(submission("a", n=3))
    wires["group-0"].batches.put_nowait([event("a", choice=1, finish=FinishReason.STOP)])
    wires["group-0"].batches.put_nowait(None)
    events = [item for batch in await collect(backend, "a") for item in batch]
    assert [(item.choice, item.finish) for item in events] == [
        (1, FinishReason.STOP),
        (0, FinishReason.ERROR),
        (2, FinishReason.ERROR),
    ]


async def test_an_id_in_use_is_refused_and_its_request_unharmed(
    backend: RayBackend, wires: dict[str, Wire], admission: HandPlayedAdmission
) -> None:
    await backend.submit(submission("a"))
    with pytest.raises(DuplicateRequest):
        await backend.submit(submission("a"))
    assert admission.submitted == ["a"]
    wires["group-0"].batches.put_nowait([event("a", 1, finish=FinishReason.STOP)])
    assert await collect(backend, "a") == [[event("a", 1, finish=FinishReason.STOP)]]
    admission.living_for["a"] = 0
    await backend.submit(submission("a"))  # it has ended: the id is free
    wires["group-0"].batches.put_nowait([event("a", 2, finish=FinishReason.STOP)])
    assert await collect(backend, "a") == [[event("a", 2, finish=FinishReason.STOP)]]


async def test_the_next_request_of_an_id_waits_until_admission_has_heard_of_the_last_ones_end(
    backend: RayBackend, wires: dict[str, Wire], admission: HandPlayedAdmission
) -> None:
    await backend.submit(submission("a"))
    wires["group-0"].batches.put_nowait([event("a", 1, finish=FinishReason.STOP)])
    await collect(backend, "a")
    admission.living_for["a"] = 2
    await backend.submit(submission("a"))
    assert (admission.submitted, admission.living_for) == (["a", "a"], {"a": -1})
    wires["group-0"].batches.put_nowait([event("a", 2, finish=FinishReason.STOP)])
    assert await collect(backend, "a") == [[event("a", 2, finish=FinishReason.STOP)]]


async def test_the_next_request_of_an_id_waits_for_the_last_event_of_one_that_was_cancelled(
    backend: RayBackend, wires: dict[str, Wire], admission: HandPlayedAdmission
) -> None:
    await backend.submit(submission("a"))
    await backend.cancel("a")
    admission.living_for["a"] = 0
    again = asyncio.create_task(backend.submit(submission("a")))
    await asyncio.sleep(0)
    assert admission.submitted == ["a"]
    wires["group-0"].batches.put_nowait([event("a", finish=FinishReason.CANCELLED)])
    await again
    assert admission.submitted == ["a", "a"]
    await backend.cancel("a")


async def test_an_id_that_was_cancelled_is_free_once_its_last_event_has_come(
    backend: RayBackend, wires: dict[str, Wire]
) -> None:
    await backend.submit(submission("a"))
    await backend.cancel("a")
    backend._ending_s = 0.0
    with pytest.raises(DuplicateRequest):  # the next "a" would be told the tokens of the last one
        await backend.submit(submission("a"))
    await backend.submit(submission("b"))
    late = [event("a", 1), event("a", finish=FinishReason.CANCELLED), event("b", finish=FinishReason.STOP)]
    wires["group-0"].batches.put_nowait(late)
    await collect(backend, "b")  # the pump has passed all that came before
    await backend.submit(submission("a"))
    wires["group-0"].batches.put_nowait([event("a", 2, finish=FinishReason.STOP)])
    assert await collect(backend, "a") == [[event("a", 2, finish=FinishReason.STOP)]]


async def test_only_requests_of_this_gateway_are_cancelled(backend: RayBackend, admission: HandPlayedAdmission) -> None:
    await backend.cancel("of another gateway")
    assert admission.cancelled == []


async def test_orders_go_to_admission_as_they_are(backend: RayBackend, admission: HandPlayedAdmission) -> None:
    terms = HoldTerms(5.0)
    assert await backend.requests("alice") == [request_row("a")]
    assert await backend.request("a", "alice") == request_row("a")
    await backend.park("a", "alice", terms, 2.5)
    await backend.unpark("a", "alice")
    await backend.set_priority("a", "alice", 3)
    await backend.end("a", "alice")
    assert admission.calls == [
        ("requests", "alice"),
        ("request", "a", "alice"),
        ("park", "a", "alice", terms, 2.5),
        ("unpark", "a", "alice", 0.0),
        ("set_priority", "a", "alice", 3),
        ("end", "a", "alice"),
    ]


async def test_refused_orders_and_a_full_queue_are_told_as_they_are(
    backend: RayBackend, admission: HandPlayedAdmission
) -> None:
    admission.no_room = QueueFull(8, 8, "requests", 2)
    with pytest.raises(QueueFull):
        await backend.check_room()
    admission.lost = UnknownRequest("a")
    with pytest.raises(UnknownRequest):
        await backend.park("a", "", HoldTerms())


async def test_a_lost_connection_ends_the_requests_it_served(backend: RayBackend, wires: dict[str, Wire]) -> None:
    for name in ("a", "b"):
        await backend.submit(submission(name))
    wires["group-0"].batches.put_nowait([event("a", 1)])
    wires["group-0"].batches.put_nowait(None)
    wires["group-1"].batches.put_nowait([event("b", finish=FinishReason.STOP)])
    lost = [item for batch in await collect(backend, "a") for item in batch]
    assert (lost[-1].finish, lost[-1].error) == (FinishReason.ERROR, "the connection to the engine was lost")
    assert await collect(backend, "b") == [[event("b", finish=FinishReason.STOP)]]


async def test_with_the_last_connection_all_requests_end_and_no_more_are_taken(
    backend: RayBackend, wires: dict[str, Wire]
) -> None:
    await backend.submit(submission("queued"))
    for wire in wires.values():
        wire.batches.put_nowait(None)
    lost = [item for batch in await collect(backend, "queued") for item in batch]
    assert lost[-1].finish is FinishReason.ERROR
    with pytest.raises(BackendLost, match="no engine is connected"):
        await backend.submit(submission("new"))
    with pytest.raises(BackendLost, match="no engine is connected"):
        await backend.check_room()
    with pytest.raises(BackendLost, match="no engine is connected"):
        await backend.status()


async def test_status_has_admissions_sums_and_nothing_of_single_requests(backend: RayBackend) -> None:
    assert await backend.status() == {
        "queued_requests": 1,
        "groups": [{"group_id": "group-0", "pages_free": 3}],
    }


async def test_a_lost_admission_is_a_lost_backend_without_its_details(
    backend: RayBackend, admission: HandPlayedAdmission
) -> None:
    admission.refusal = admission.lost = ClusterFailed("admission is lost: pid 17 on node 3 died")
    with pytest.raises(BackendLost, match=r"^the scheduler behind this gateway does not answer$"):
        await backend.submit(submission("a"))
    with pytest.raises(BackendLost, match=r"^the scheduler behind this gateway does not answer$"):
        await backend.status()
    with pytest.raises(BackendLost, match=r"^the scheduler behind this gateway does not answer$"):
        await backend.requests("")
    assert backend.num_open == 0
