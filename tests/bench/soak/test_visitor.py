"""A visit over a socketless server: orders go where they should, and only what must not happen is a fault."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import httpx
import pytest

from bench.soak.errand import Errand, Fate, Order
from bench.soak.visitor import Visit, Visitor

ERRAND = Errand(
    number=1,
    request_id="soak-1",
    prompt=(1, 2),
    max_tokens=2,
    n=2,
    seed=0,
    priority=1,
    stream=True,
    fate=Fate.LEFT_ALONE,
    after_s=0.0,
    pause_s=0.0,
)
CANCELLED = b'data: {"error":{"message":"cancelled","code":"request_cancelled"}}\n\n'


def chunk(index: int, text: str = "", finish: str | None = None) -> bytes:
    choice = {"index": index, "text": text, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def usage(tokens: int) -> bytes:
    return (
        b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": tokens, "parks": 1}}).encode() + b"\n\n"
    )


WHOLE = chunk(0, "a") + chunk(1, "b") + chunk(1, "c", "length") + chunk(0, "d", "length") + usage(4)


class Server:
    """Answers completions with `answers` in turn, and every order with `order_code`; `orders` are (method, path, body).

    `says` is what it says wrongly of the request in an answer to an order.
    """

    def __init__(
        self, answers: list[httpx.Response], order_code: int = 200, says: dict[str, object] | None = None
    ) -> None:
        self.answers, self.order_code, self.says = answers, order_code, says or {}
        self.orders: list[tuple[str, str, object]] = []
        self.ids: list[str] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/completions":
            self.ids.append(request.headers["x-request-id"])
            return self.answers.pop(0)
        body = json.loads(request.content) if request.content else None
        self.orders.append((request.method, request.url.path, body))
        if self.order_code != 200:
            return httpx.Response(self.order_code, json={"error": {"message": "no"}})
        held, cancelled = request.url.path.endswith("/park"), request.method == "DELETE"
        row = {"held": held, "cancelled": cancelled, "priority": (body or {}).get("priority", 0)}
        return httpx.Response(200, json=row | self.says)


async def visit(server: Callable[[httpx.Request], object], errand: Errand) -> Visit:
    async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as client:
        return await Visitor(client, "http://x", "m").visit(errand)


class Slow(httpx.AsyncByteStream):
    """The end of the stream comes when `go` is set; `ended` is set after it."""

    def __init__(self, go: asyncio.Event, ended: asyncio.Event | None = None) -> None:
        self._go, self._ended = go, ended or asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield chunk(0, "a")
        await self._go.wait()
        yield WHOLE
        self._ended.set()


async def test_a_whole_family_is_no_fault_and_its_texts_are_told_apart() -> None:
    server = Server([httpx.Response(200, content=WHOLE)])
    done = await visit(server, ERRAND)
    assert (done.fault, done.is_whole, done.texts) == (None, True, {0: "ad", 1: "bc"})
    assert server.ids == ["soak-1"]
    assert server.orders == []


async def test_an_answer_in_one_piece_is_read_as_well() -> None:
    choices = [{"index": index, "text": "xy", "finish_reason": "length"} for index in range(2)]
    answer = httpx.Response(200, json={"choices": choices, "usage": {"completion_tokens": 4}})
    done = await visit(Server([answer]), replace(ERRAND, stream=False))
    assert (done.fault, done.is_whole) == (None, True)


@pytest.mark.parametrize("code", [429, 503])
async def test_a_refusal_is_waited_out(code: int) -> None:
    refused = httpx.Response(code, headers={"Retry-After": "0"}, json={"error": {"message": "full"}})
    done = await visit(Server([refused, httpx.Response(200, content=WHOLE)]), ERRAND)
    assert (done.fault, done.refusals) == (None, 1)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (chunk(0, "a", "length") + usage(4), "ended with {0: 'length'}, 4 tokens"),
        (WHOLE.replace(b"4", b"3"), "ended with"),
        (CANCELLED, "ended with request_cancelled"),
    ],
    ids=["one choice never ended", "too few tokens", "nobody had cancelled it"],
)
async def test_an_end_that_was_not_asked_for_is_a_fault(content: bytes, fault: str) -> None:
    done = await visit(Server([httpx.Response(200, content=content)]), ERRAND)
    assert done.fault is not None and done.fault.startswith(fault)


async def test_an_error_status_is_a_fault_with_its_message() -> None:
    answer = httpx.Response(500, json={"error": {"message": "broken", "code": "internal"}})
    done = await visit(Server([answer]), ERRAND)
    assert done.fault == "was answered with 500: broken"


@pytest.mark.parametrize(
    ("fate", "orders"),
    [
        (Fate.CANCEL, [("DELETE", "/v1/requests/soak-1", None)]),
        (Fate.PRIORITY, [("PATCH", "/v1/requests/soak-1", {"priority": 1})]),
        (Fate.PARK, [("POST", "/v1/requests/soak-1/park", None), ("POST", "/v1/requests/soak-1/unpark", None)]),
        (
            Fate.PARK_THEN_CANCEL,
            [("POST", "/v1/requests/soak-1/park", {"deadline_s": 0.0, "then": "cancel"})],
        ),
        (
            Fate.PARK_THEN_UNPARK,
            [("POST", "/v1/requests/soak-1/park", {"deadline_s": 0.0, "then": "unpark"})],
        ),
    ],
)
async def test_its_fate_is_ordered_while_it_streams(fate: Fate, orders: list[tuple[str, str, object]]) -> None:
    server, done = await ordered(fate, len(orders))
    assert server.orders == orders
    assert done.fault is None
    assert [code for _, code in done.answers] == [200] * len(orders)


async def ordered(
    fate: Fate, num_orders: int, *, code: int = 200, says: dict[str, object] | None = None
) -> tuple[Server, Visit]:
    """A visit whose answer ends when so many orders have come."""
    go = asyncio.Event()
    server = Server([httpx.Response(200, stream=Slow(go))], order_code=code, says=says)

    async def ends_after_its_orders(request: httpx.Request) -> httpx.Response:
        answer = await server(request)
        if len(server.orders) == num_orders:
            go.set()
        return answer

    return server, await visit(ends_after_its_orders, replace(ERRAND, fate=fate))


@pytest.mark.parametrize(
    ("fate", "num_orders", "says", "fault"),
    [
        (Fate.PARK, 2, {"held": None}, "park was answered with held None, not True"),
        (Fate.CANCEL, 1, {"cancelled": False}, "cancel was answered with cancelled False, not True"),
        (Fate.PRIORITY, 1, {"priority": 7}, "change its priority was answered with priority 7, not 1"),
    ],
)
async def test_an_order_that_is_answered_with_200_and_not_done_is_a_fault(
    fate: Fate, num_orders: int, says: dict[str, object], fault: str
) -> None:
    _, done = await ordered(fate, num_orders, says=says)
    assert done.fault == fault


async def test_who_was_cancelled_may_end_as_cancelled() -> None:
    done = await visit(Server([httpx.Response(200, content=CANCELLED)]), replace(ERRAND, fate=Fate.CANCEL))
    assert done.fault is None


async def test_who_disconnects_leaves_in_the_middle() -> None:
    server = Server([httpx.Response(200, stream=Slow(asyncio.Event()))])
    done = await visit(server, replace(ERRAND, fate=Fate.DISCONNECT))
    assert (done.left, done.fault, done.is_whole) == (True, None, False)


@pytest.mark.parametrize(("code", "is_fault"), [(404, False), (409, False), (500, True)])
async def test_an_order_may_come_too_late_but_must_not_break(code: int, is_fault: bool) -> None:
    _, done = await ordered(Fate.CANCEL, 1, code=code)
    assert (done.fault is not None) is is_fault
    assert done.answers == [(Order.CANCEL, code)]


async def test_an_order_that_ends_the_request_is_answered_all_the_same() -> None:
    go, ended = asyncio.Event(), asyncio.Event()
    server = Server([httpx.Response(200, stream=Slow(go, ended))])

    async def answers_last(request: httpx.Request) -> httpx.Response:
        answer = await server(request)
        if server.orders:
            go.set()
            await ended.wait()
            for _ in range(50):  # turns enough for the visitor to have read the end
                await asyncio.sleep(0)
        return answer

    done = await visit(answers_last, replace(ERRAND, fate=Fate.CANCEL))
    assert done.answers == [(Order.CANCEL, 200)]
