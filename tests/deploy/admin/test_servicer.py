"""Every method of the admin interface, asked over a real loopback port by the generated client."""

import asyncio
import math
from typing import Any

import grpc
import pytest

from cluster.errors import ClusterFailed
from deploy.admin.servicer import MAX_WATCHERS
from deploy.admin.v1 import admin_pb2
from scheduler.admission import HoldEnd, HoldTerms
from tests.deploy.admin.conftest import TOKEN
from tests.deploy.admin.played_admission import PlayedAdmission, row

METADATA = (("authorization", f"Bearer {TOKEN}"),)
SOON_S = 10.0


async def call(method: Any, request: Any, within_s: float = SOON_S) -> Any:
    return await method(request, metadata=METADATA, timeout=within_s)


async def refused(method: Any, request: Any, within_s: float = SOON_S) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(method, request, within_s)
    return caught.value


async def test_a_request_is_told_with_all_that_is_known(stub: Any, admission: PlayedAdmission) -> None:
    admission.rows["job-7"] = row(
        "job-7",
        slot=2,
        owner="team",
        state="parked",
        held=True,
        hold_left_s=8.5,
        then="cancel",
        n=3,
        seats=2,
        age_s=9.0,
    )
    told = await call(stub.GetRequest, admin_pb2.GetRequestRequest(request_id="job-7"))
    assert told == admin_pb2.Request(
        request_id="job-7",
        slot=2,
        owner="team",
        state=admin_pb2.STATE_PARKED,
        held=True,
        hold_left_s=8.5,
        then=admin_pb2.HOLD_END_CANCEL,
        prompt_tokens=60,
        tokens=100,
        n=3,
        seats=2,
        pages=7,
        waited_s=0.25,
        age_s=9.0,
        group_id="group-0",
    )
    assert not (await call(stub.GetRequest, admin_pb2.GetRequestRequest(request_id="chatcmpl-aa11"))).HasField(
        "hold_left_s"
    )


@pytest.mark.parametrize(
    ("filters", "ids", "total"),
    [
        ({}, ["chatcmpl-aa11", "chatcmpl-ab22", "job-7"], 3),
        ({"states": [admin_pb2.STATE_QUEUED, admin_pb2.STATE_PARKED]}, ["chatcmpl-ab22", "job-7"], 2),
        ({"id_prefix": "chatcmpl-a"}, ["chatcmpl-aa11", "chatcmpl-ab22"], 2),
        ({"id_prefix": "job-7"}, ["job-7"], 1),
        ({"id_prefix": "cmpl"}, [], 0),
        ({"limit": 1}, ["chatcmpl-aa11"], 3),
    ],
)
async def test_lists_are_in_order_of_arrival_and_filtered(
    stub: Any, filters: dict[str, Any], ids: list[str], total: int
) -> None:
    listed = await call(stub.ListRequests, admin_pb2.ListRequestsRequest(**filters))
    assert ([request.request_id for request in listed.requests], listed.total) == (ids, total)


async def test_a_park_holds_by_its_terms(stub: Any, admission: PlayedAdmission) -> None:
    order = admin_pb2.ParkRequest(request_id="chatcmpl-aa11", deadline_s=60, then=admin_pb2.HOLD_END_CANCEL, wait_s=2)
    told = await call(stub.Park, order)
    assert (told.state, told.held, told.hold_left_s) == (admin_pb2.STATE_PARKED, True, 60)
    assert (told.then, told.arena_pages) == (admin_pb2.HOLD_END_CANCEL, 7)
    assert (admission.terms, admission.wait_s) == (HoldTerms(60, HoldEnd.CANCEL), 2)


async def test_a_park_without_terms_holds_without_end_and_is_waited_for(stub: Any, admission: PlayedAdmission) -> None:
    told = await call(stub.Park, admin_pb2.ParkRequest(request_id="job-7"))
    assert not told.HasField("hold_left_s")
    assert (admission.terms, admission.wait_s) == (HoldTerms(None, HoldEnd.UNPARK), 5)


async def test_unpark_ends_the_hold(stub: Any, admission: PlayedAdmission) -> None:
    await call(stub.Park, admin_pb2.ParkRequest(request_id="job-7"))
    told = await call(stub.Unpark, admin_pb2.UnparkRequest(request_id="job-7", wait_s=3))
    assert (told.held, told.then, admission.wait_s) == (False, admin_pb2.HOLD_END_UNSPECIFIED, 3)


async def test_priorities_go_below_zero_and_come_back_with_their_effect(stub: Any) -> None:
    told = await call(stub.SetPriority, admin_pb2.SetPriorityRequest(request_id="job-7", priority=-(2**31)))
    assert (told.priority, told.effective_priority) == (-(2**31), -(2**31) + 2)


async def test_cancel_tells_that_it_is_ending(stub: Any) -> None:
    assert (await call(stub.Cancel, admin_pb2.CancelRequest(request_id="job-7"))).cancelling


async def test_drain_and_undrain(stub: Any, admission: PlayedAdmission) -> None:
    assert (await call(stub.Drain, admin_pb2.DrainRequest())).living == 3
    assert (await call(stub.GetStatus, admin_pb2.GetStatusRequest())).draining
    await call(stub.Undrain, admin_pb2.UndrainRequest())
    assert not admission.draining


async def test_the_status_counts_and_measures(stub: Any) -> None:
    assert await call(stub.GetStatus, admin_pb2.GetStatusRequest()) == admin_pb2.GetStatusResponse(
        by_state={"resident": 1, "queued": 1, "parked": 1},
        tiers=[admin_pb2.Tier(effective_priority=0, by_state={"resident": 1, "queued": 1, "parked": 1})],
        queued_requests=2,
        queued_tokens=300,
        groups=[
            admin_pb2.Group(
                group_id="group-0",
                pages_total=64,
                pages_free=50,
                pages_unclaimed=48,
                arena_total=85,
                arena_free=80,
                seats=8,
                seats_free=6,
                parked=1,
            )
        ],
    )


@pytest.mark.parametrize(
    ("method", "request_type", "fields", "field", "bound"),
    [
        ("GetRequest", "GetRequestRequest", {}, "request_id", "1 to 256 characters"),
        ("Cancel", "CancelRequest", {"request_id": "x" * 257}, "request_id", "1 to 256 characters"),
        ("Park", "ParkRequest", {"request_id": "a", "deadline_s": 0}, "deadline_s", "more than 0"),
        ("Park", "ParkRequest", {"request_id": "a", "deadline_s": math.nan}, "deadline_s", "more than 0"),
        ("Park", "ParkRequest", {"request_id": "a", "deadline_s": 2e9}, "deadline_s", "at most 1000000000"),
        ("Park", "ParkRequest", {"request_id": "a", "then": 2}, "then", "left out without a deadline_s"),
        ("Park", "ParkRequest", {"request_id": "a", "deadline_s": 1, "then": 9}, "then", "1 (unpark) or 2 (cancel)"),
        ("Park", "ParkRequest", {"request_id": "a", "wait_s": 61}, "wait_s", "0 to 60 seconds"),
        ("Unpark", "UnparkRequest", {"request_id": "a", "wait_s": -1}, "wait_s", "0 to 60 seconds"),
        ("ListRequests", "ListRequestsRequest", {"limit": 10_001}, "limit", "at most 10000"),
        ("ListRequests", "ListRequestsRequest", {"states": [0]}, "states", "of 1 to 5"),
        ("ListRequests", "ListRequestsRequest", {"id_prefix": "x" * 257}, "id_prefix", "at most 256"),
    ],
)
async def test_a_field_out_of_bounds_is_named_with_its_bound(
    *, stub: Any, method: str, request_type: str, fields: dict[str, Any], field: str, bound: str
) -> None:
    error = await refused(getattr(stub, method), getattr(admin_pb2, request_type)(**fields))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (error.details() or "").startswith(f"{field} must be ")
    assert bound in (error.details() or "")
    assert error.trailing_metadata()["parkade-field"] == field


async def test_an_unknown_id_is_not_found(stub: Any) -> None:
    error = await refused(stub.Unpark, admin_pb2.UnparkRequest(request_id="gone"))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details() == "no live request has the id gone: it has ended, or never was"


async def test_a_wrong_state_is_told_in_words_and_in_metadata(stub: Any, admission: PlayedAdmission) -> None:
    admission.rows["job-7"] = row("job-7", cancelling=True)
    error = await refused(stub.Park, admin_pb2.ParkRequest(request_id="job-7"))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == "request job-7 is ending: it can be held no more"
    assert error.trailing_metadata()["parkade-state"] == "ending"


async def test_a_lost_cluster_is_unavailable(stub: Any, admission: PlayedAdmission) -> None:
    admission.error = ClusterFailed("admission is lost: its process died")
    error = await refused(stub.GetStatus, admin_pb2.GetStatusRequest())
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "admission is lost: its process died")


async def test_a_fault_of_ours_says_nothing_of_the_inside(
    stub: Any, admission: PlayedAdmission, caplog: pytest.LogCaptureFixture
) -> None:
    admission.error = KeyError("a secret")
    error = await refused(stub.GetStatus, admin_pb2.GetStatusRequest())
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (error.details() or "")
    assert "an admin call failed" in caplog.text


async def test_a_park_waits_less_than_its_caller(stub: Any, admission: PlayedAdmission) -> None:
    await call(stub.Park, admin_pb2.ParkRequest(request_id="job-7", wait_s=50), within_s=5)
    assert admission.wait_s is not None
    assert 0 < admission.wait_s < 5


async def test_a_deadline_ends_a_call_that_hangs(stub: Any, admission: PlayedAdmission) -> None:
    admission.hangs = True
    error = await refused(stub.Park, admin_pb2.ParkRequest(request_id="job-7"), within_s=0.2)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


# ---- WatchEvents


def watch(stub: Any, within_s: float = SOON_S, **fields: Any) -> Any:
    return stub.WatchEvents(admin_pb2.WatchEventsRequest(**fields), metadata=METADATA, timeout=within_s)


async def test_a_watch_begins_now_and_says_at_once_where_that_is(stub: Any, admission: PlayedAdmission) -> None:
    admission.ring.add("draining")
    stream = watch(stub)
    assert await stream.read() == admin_pb2.WatchEventsResponse(next=1)
    admission.ring.add("parked", "job-7", "group-0", pages=9, seconds=0.5, reason="explicit")
    told = await stream.read()
    assert told == admin_pb2.WatchEventsResponse(
        next=2,
        events=[
            admin_pb2.Event(
                number=1,
                unix_s=1_700_000_000.125,
                kind="parked",
                request_id="job-7",
                group_id="group-0",
                facts={
                    "pages": admin_pb2.Fact(whole=9),
                    "seconds": admin_pb2.Fact(real=0.5),
                    "reason": admin_pb2.Fact(text="explicit"),
                },
            )
        ],
    )
    stream.cancel()


async def test_a_watch_from_a_number_tells_what_is_lost(stub: Any, admission: PlayedAdmission) -> None:
    for number in range(6):  # the ring keeps four
        admission.ring.add("submitted", f"r{number}")
    stream = watch(stub, from_number=1)
    told = await stream.read()
    assert ([event.number for event in told.events], told.lost, told.next) == ([2, 3, 4, 5], 1, 6)
    stream.cancel()


async def test_a_watch_of_one_request_leaves_the_others_out(stub: Any, admission: PlayedAdmission) -> None:
    stream = watch(stub, request_id="job-7")
    await stream.read()
    for request_id in ("a", "job-7"):
        admission.ring.add("submitted", request_id)
    assert [event.request_id for event in (await stream.read()).events] == ["job-7"]
    stream.cancel()


async def test_a_watch_that_is_left_frees_its_place(stub: Any, admission: PlayedAdmission) -> None:
    streams = [watch(stub) for _ in range(MAX_WATCHERS)]
    for stream in streams:
        await stream.read()
    error = await refused_stream(watch(stub))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "16 streams of WatchEvents are open, the most there may be: end one"
    streams[0].cancel()
    await asyncio.wait_for(admission.watch_ended.wait(), SOON_S)
    assert (await watch(stub).read()).next == 0
    for stream in streams:
        stream.cancel()


async def test_a_deadline_ends_a_watch(stub: Any, admission: PlayedAdmission) -> None:
    stream = watch(stub, within_s=0.3)
    await stream.read()
    assert (await refused_stream(stream)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(admission.watch_ended.wait(), SOON_S)


async def refused_stream(stream: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    return caught.value
