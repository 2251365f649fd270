"""A watch of one request ends with it, whatever came first: the watch, the end, or the end of what is kept."""

from typing import Any

import grpc
import pytest

from deploy.admin.following import follow
from deploy.admin.v1 import admin_pb2
from scheduler.admission import UnknownRequest
from tests.deploy.admin.conftest import TOKEN
from tests.deploy.admin.played_admission import PlayedAdmission

METADATA = (("authorization", f"Bearer {TOKEN}"),)
SOON_S = 10.0


def watch(stub: Any, **fields: Any) -> Any:
    return stub.WatchEvents(admin_pb2.WatchEventsRequest(**fields), metadata=METADATA, timeout=SOON_S)


def finish(admission: PlayedAdmission, request_id: str) -> None:
    del admission.rows[request_id]
    admission.ring.add("finished", request_id, "group-0", reason="stop")


async def test_a_watch_of_one_request_ends_after_its_end(stub: Any, admission: PlayedAdmission) -> None:
    stream = watch(stub, request_id="job-7")
    await stream.read()
    admission.ring.add("finished", "another", "group-0", reason="stop")
    finish(admission, "job-7")
    assert [event.number for event in (await stream.read()).events] == [1]
    assert await stream.read() is grpc.aio.EOF


async def test_a_watch_of_a_request_that_has_ended_already_is_refused(stub: Any, admission: PlayedAdmission) -> None:
    finish(admission, "job-7")
    stream = watch(stub, request_id="job-7")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await stream.read() is not grpc.aio.EOF:
            pass
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_what_is_kept_of_a_request_that_has_ended_is_told_from_its_number_on(
    stub: Any, admission: PlayedAdmission
) -> None:
    admission.ring.add("parked", "job-7", "group-0")
    finish(admission, "job-7")
    stream = watch(stub, request_id="job-7", from_number=0)
    assert [event.kind for event in (await stream.read()).events] == ["parked", "finished"]
    assert await stream.read() is grpc.aio.EOF


async def test_an_end_between_the_first_batch_and_the_next_is_told(admission: PlayedAdmission) -> None:
    following = follow(admission, "job-7", -1)
    await anext(following)
    finish(admission, "job-7")
    _, events = await anext(following)
    assert [event.kind for event in events] == ["finished"]
    with pytest.raises(StopAsyncIteration):
        await anext(following)


async def test_an_end_among_the_events_that_are_lost_ends_the_watch(admission: PlayedAdmission) -> None:
    following = follow(admission, "job-7", -1)
    await anext(following)
    admission.ring.add("parked", "job-7", "group-0")
    await anext(following)
    finish(admission, "job-7")
    for number in range(9):  # the ring keeps four
        admission.ring.add("submitted", f"r{number}")
    batch, events = await anext(following)
    assert (batch.lost, events) == (6, [])
    with pytest.raises(StopAsyncIteration):
        await anext(following)


@pytest.mark.parametrize("start", [-1, 0], ids=["now", "replayed"])
async def test_a_watch_ends_with_the_first_life_of_an_id_that_is_taken_again(
    admission: PlayedAdmission, start: int
) -> None:
    following = follow(admission, "job-7", start)
    if start < 0:
        await anext(following)
    again = admission.rows["job-7"]
    finish(admission, "job-7")
    admission.rows["job-7"] = again
    admission.ring.add("submitted", "job-7")
    _, events = await anext(following)
    assert [event.kind for event in events] == ["finished"]
    with pytest.raises(StopAsyncIteration):
        await anext(following)


async def test_a_watch_that_begins_after_the_first_life_follows_the_second(admission: PlayedAdmission) -> None:
    again = admission.rows["job-7"]
    finish(admission, "job-7")
    admission.rows["job-7"] = again
    admission.ring.add("submitted", "job-7")
    following = follow(admission, "job-7", 1)
    _, events = await anext(following)
    assert [event.kind for event in events] == ["submitted"]
    finish(admission, "job-7")
    _, events = await anext(following)
    assert [event.kind for event in events] == ["finished"]
    with pytest.raises(StopAsyncIteration):
        await anext(following)


async def test_an_id_that_is_too_long_is_named_by_its_own_field(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watch(stub, request_id="x" * 257).read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "request_id must be 1 to 256 characters" in (caught.value.details() or "")


async def test_nothing_told_of_a_request_that_never_was_is_an_unknown_request(admission: PlayedAdmission) -> None:
    following = follow(admission, "nobody", 0)
    await anext(following)
    with pytest.raises(UnknownRequest):
        await anext(following)
