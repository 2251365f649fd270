"""One of four streams parked by its id: the orders come when they should, to the right request."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from bench.chat import Chat
from bench.exactness.forced import Forced
from bench.exactness.over_http import park_over_http
from bench.streams import StreamError
from bench.subprocess_server import RunningServer

SIZES = Forced(beside_tokens=8, park_at=2, resume_at=6)
CHATS = [Chat(name=name, question=name, max_tokens=8) for name in ("a", "b", "c")]
SERVER = RunningServer(url="http://x", pid=1, model="m", ready_s=0.0)


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


class Streams(httpx.AsyncByteStream):
    """Tokens of one chat; it stands still where it was parked, until it is unparked."""

    def __init__(self, server: "ParkingServer", request_id: str, name: str) -> None:
        self._server, self._id, self._name = server, request_id, name

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parks = 0
        for number in range(8):
            while self._id in self._server.parked:
                if not parks:
                    yield b": parked\n\n"
                    parks = 1
                await asyncio.sleep(0)
            text = f"{self._name}{number}"
            yield event(id=self._id, choices=[{"delta": {"content": text}, "finish_reason": None}])
            await asyncio.sleep(0)
        yield event(id=self._id, choices=[{"delta": {}, "finish_reason": "length"}])
        yield event(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 8, "parks": parks})


class ParkingServer:
    def __init__(self, refuses: str = "") -> None:
        self.parked: set[str] = set()
        self.orders: list[str] = []
        self._refuses = refuses
        self._numbers = iter(range(100))

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/chat/completions":
            name = json.loads(request.content)["messages"][0]["content"]
            request_id = "chatcmpl-" + request.headers.get("x-request-id", str(next(self._numbers)))
            return httpx.Response(200, stream=Streams(self, request_id, name))
        request_id, _, action = request.url.path.removeprefix("/v1/requests/").partition("/")
        if request.method == "GET":
            return httpx.Response(200, json={"id": request_id, "state": "parked", "pages": 0})
        self.orders.append(action)
        if action == self._refuses:
            return httpx.Response(409, json={"error": {"message": "not now"}})
        (self.parked.add if action == "park" else self.parked.discard)(request_id)
        return httpx.Response(200, json={})


async def test_the_second_is_parked_in_the_middle_and_says_the_same_in_the_end() -> None:
    server = ParkingServer()
    async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as client:
        done = await park_over_http(client, SERVER, CHATS, SIZES)
    assert server.orders == ["park", "unpark"]
    assert done.num_same == 3
    assert [run.parks for run in done.together] == [0, 1, 0]
    assert done.row["state"] == "parked"
    assert done.row["id"] == done.together[1].request_id
    assert 2 <= done.events_at_park < 8


async def test_an_order_that_is_refused_ends_the_bench_and_its_streams() -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(ParkingServer(refuses="park"))) as client:
        with pytest.raises(StreamError, match="park was answered with 409"):
            await park_over_http(client, SERVER, CHATS, SIZES)
