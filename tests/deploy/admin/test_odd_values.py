"""Values of the core that their fields cannot hold: told as near as can be, and no answer fails."""

from typing import Any

from deploy.admin.v1 import admin_pb2
from tests.deploy.admin.conftest import TOKEN
from tests.deploy.admin.played_admission import PlayedAdmission, group_row, row

METADATA = (("authorization", f"Bearer {TOKEN}"),)
SOON_S = 10.0


async def call(method: Any, request: Any) -> Any:
    return await method(request, metadata=METADATA, timeout=SOON_S)


async def test_no_number_of_the_core_makes_the_status_fail(stub: Any, admission: PlayedAdmission) -> None:
    admission.groups = (
        group_row(pages_unclaimed=-3, seats_free=-1, shortfall=-2, arena_free=-4, pages_total=2**65, parked=2**40),
    )
    told = (await call(stub.GetStatus, admin_pb2.GetStatusRequest())).groups[0]
    assert (told.pages_unclaimed, told.seats_free, told.shortfall, told.arena_free) == (0, 0, 0, 0)
    assert (told.pages_total, told.parked) == (2**64 - 1, 2**32 - 1)


async def test_no_value_of_the_core_makes_a_request_or_an_event_fail(stub: Any, admission: PlayedAdmission) -> None:
    admission.rows["odd"] = row(
        "odd", pages=-1, seats=-1, parks=2**40, priority=2**40, effective_priority=-(2**70), state="new", then="new"
    )
    told = await call(stub.GetRequest, admin_pb2.GetRequestRequest(request_id="odd"))
    assert (told.pages, told.seats, told.parks, told.priority) == (0, 0, 2**32 - 1, 2**31 - 1)
    assert (told.effective_priority, told.state, told.then) == (-(2**63), 0, 0)
    stream = stub.WatchEvents(admin_pb2.WatchEventsRequest(), metadata=METADATA, timeout=SOON_S)
    await stream.read()
    admission.ring.add("finished", "odd", "group-0", tokens=2**70, error="\ud800")
    facts = (await stream.read()).events[0].facts
    assert (facts["tokens"].whole, facts["error"].text) == (2**63 - 1, "?")
    stream.cancel()
