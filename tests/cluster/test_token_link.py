"""Tokens reach their gateway in order, and no gateway can hold up the engine."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cluster import token_hub
from cluster.cluster_spec import TokenAddress
from cluster.token_link import TokenClient
from cluster.token_wire import VERSION, GatewayHello, decode_events, encode
from scheduler.messages import FinishReason, Notice, TokenEvent
from tests.cluster.hubs import event, open_hub
from workers.link import LinkClosed, LinkRefused
from workers.link.endpoint import Endpoint
from workers.link.frames import frame


async def take(client: TokenClient, count: int) -> list[list[TokenEvent]]:
    """The next `count` batches."""
    batches: list[list[TokenEvent]] = []
    async with asyncio.timeout(10):
        async for batch in client:
            batches.append(batch)
            if len(batches) == count:
                break
    return batches


@pytest.mark.parametrize("endpoint", [None, Endpoint(host="127.0.0.1", port=0)], ids=["unix", "tcp"])
async def test_each_gateway_gets_its_own_events_in_order_and_in_every_field(endpoint: Endpoint | None) -> None:
    full = TokenEvent(
        request_id="a",
        choice=3,
        tokens=(1, 2),
        notice=Notice.RECOMPUTED,
        finish=FinishReason.ERROR,
        error="x",
        parks=2,
        recomputes=1,
        parked_s=0.5,
    )
    async with open_hub(endpoint) as (hub, address, _):
        one, other = [await TokenClient.connect(address, name) for name in ("one", "other")]
        hub.send({"one": [event("a", 1)], "other": [event("b", 9)]})
        hub.send({"one": [event("a", 2), event("c")]})
        hub.send({"one": [full]})
        assert await take(one, 3) == [[event("a", 1)], [event("a", 2), event("c")], [full]]
        assert await take(other, 1) == [[event("b", 9)]]
        await one.close()
        await other.close()


def test_a_step_of_many_streams_is_a_small_frame() -> None:
    request_id = "chatcmpl-" + "0" * 32
    batch = [TokenEvent(request_id=request_id, choice=1, tokens=(150_000,), parks=3, parked_s=9.5) for _ in range(64)]
    assert len(encode(batch)) < 64 * 150
    assert decode_events(encode(batch)) == batch


async def test_events_for_a_gateway_that_has_not_connected_wait_for_it() -> None:
    async with open_hub() as (hub, address, losses):
        hub.send({"late": [event("a", 1)]})
        hub.send({"late": [event("a", 2)]})
        client = await TokenClient.connect(address, "late")
        hub.send({"late": [event("a", 3)]})
        batches = await take(client, 2)
        assert [one for batch in batches for one in batch] == [event("a", 1), event("a", 2), event("a", 3)]
        assert losses.names == []
        await client.close()


async def test_a_gateway_that_never_connects_is_given_up_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_hub, "MAX_EARLY_EVENTS", 3)
    monkeypatch.setattr(token_hub, "MAX_EARLY_GATEWAYS", 1)
    async with open_hub() as (hub, _, losses):
        for _ in range(3):
            hub.send({"never": [event("a")]})
        assert losses.names == []
        hub.send({"second": [event("b")]})
        assert losses.names == ["second"]
        hub.send({"never": [event("a")]})
        assert losses.names == ["second", "never"]


async def test_a_gateway_that_does_not_read_is_given_up_and_the_others_go_on() -> None:
    async with open_hub(max_unsent_bytes=100_000) as (hub, address, losses):
        slow, quick = [await TokenClient.connect(address, name) for name in ("slow", "quick")]
        much = event("a", *range(70_000, 90_000))
        sent = 0
        while not losses.names:
            hub.send({"slow": [much], "quick": [event("b", sent)]})
            sent += 1
            assert sent < 10_000
        assert losses.names == ["slow"]
        assert await take(quick, sent) == [[event("b", number)] for number in range(sent)]
        assert losses.names == ["slow"]
        await slow.close()
        await quick.close()


async def test_a_gateway_that_hangs_up_is_told_to_the_owner_once_and_may_come_back() -> None:
    async with open_hub() as (hub, address, losses):
        client = await TokenClient.connect(address, "one")
        await client.close()
        await losses.until_some()
        assert losses.names == ["one"]
        again = await TokenClient.connect(address, "one")
        hub.send({"one": [event("a", 5)]})
        assert await take(again, 1) == [[event("a", 5)]]
        await again.close()


async def test_the_iteration_ends_when_the_engine_hangs_up_after_the_last_event() -> None:
    async with open_hub() as (hub, address, losses):
        client = await TokenClient.connect(address, "one")
        hub.send({"one": [event("a", 5)]})
        hub.close()
        assert [batch async for batch in client] == [[event("a", 5)]]
        assert losses.names == []
        await client.close()


async def test_a_wrong_secret_is_turned_away_without_a_word() -> None:
    async with open_hub() as (_, address, losses):
        with pytest.raises(LinkRefused, match="is the secret right"):
            await TokenClient.connect(replace(address, token="guess"), "one")
        assert losses.names == []


async def test_a_second_connection_of_one_gateway_is_refused() -> None:
    async with open_hub() as (_, address, losses):
        client = await TokenClient.connect(address, "one")
        with pytest.raises(LinkRefused, match="gateway one is connected already"):
            await TokenClient.connect(address, "one")
        assert losses.names == []
        await client.close()


async def test_another_version_is_refused_with_both_numbers() -> None:
    async with open_hub() as (_, address, _):
        reader, writer = await asyncio.open_unix_connection(address.endpoint.removeprefix("unix:"))
        hello = GatewayHello(version=VERSION + 1, token=address.token, gateway_id="one")
        writer.write(frame(encode(hello)))
        answer = await asyncio.wait_for(reader.read(), 5)
        assert f"speaks version {VERSION + 1} of the token link, the engine version {VERSION}".encode() in answer
        writer.close()
        await writer.wait_closed()


async def test_a_gateway_that_talks_back_is_cut_off() -> None:
    async with open_hub() as (_, address, losses):
        client = await TokenClient.connect(address, "one")
        client._writer.write(b"more")
        assert [batch async for batch in client] == []
        assert losses.names == ["one"]
        await client.close()


async def test_no_engine_at_an_address_is_a_clear_error() -> None:
    address = TokenAddress(group_id="group-0", endpoint="unix:/nonexistent/link.sock", token="x")
    with pytest.raises(LinkClosed, match=r"group group-0 does not answer at unix:/nonexistent/link\.sock"):
        await TokenClient.connect(address, "one")


async def test_the_secret_is_not_shown() -> None:
    async with open_hub() as (_, address, _):
        assert address.token not in repr(address)


async def test_a_closed_hub_leaves_no_socket_behind() -> None:
    async with open_hub() as (hub, address, _):
        folder = Path(address.endpoint.removeprefix("unix:")).parent
        assert await asyncio.to_thread(folder.exists)
        hub.close()
        hub.close()
        assert not await asyncio.to_thread(folder.exists)
