"""Sends one errand to a server, brings its fate about, and says how it ended."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.chat import error_message
from bench.soak.errand import CUT, Errand, Fate, Order
from bench.sse import Data, SseParser

TIMEOUT_S = 300.0
# Answers to an order that are no fault: done, gone already, or not possible in its state.
FAIR_ORDER_CODES = (200, 202, 204, 404, 409)
MAX_TRIES = 50
# A request that was cancelled by order ends with this error.
CANCELLED_CODE = "request_cancelled"
# Method and path of an order, and what an answer with 200 must say of the request.
CALLS = {
    Order.PARK: ("POST", "/park"),
    Order.UNPARK: ("POST", "/unpark"),
    Order.PARK_THEN_UNPARK: ("POST", "/park"),
    Order.PARK_THEN_CANCEL: ("POST", "/park"),
    Order.CANCEL: ("DELETE", ""),
    Order.PRIORITY: ("PATCH", ""),
}
TOLD = {Order.PARK: {"held": True}, Order.UNPARK: {"held": False}, Order.CANCEL: {"cancelled": True}}


@dataclass(slots=True)
class Visit:
    """`fault` says what should not have happened; None while all is as asked. Texts by choice.

    `answers` are the orders given and the status of the answer to each. `ordering` is held while one is under way.
    """

    errand: Errand
    texts: dict[int, str] = field(default_factory=dict)
    finishes: dict[int, str] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    refusals: int = 0
    answers: list[tuple[Order, int]] = field(default_factory=list)
    left: bool = False
    fault: str | None = None
    ordering: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    @property
    def is_whole(self) -> bool:
        errand = self.errand
        ended = [self.finishes.get(choice) for choice in range(errand.n)]
        return ended == ["length"] * errand.n and self.usage.get("completion_tokens") == errand.n * errand.max_tokens

    @property
    def is_cancelled(self) -> bool:
        return self.error == CANCELLED_CODE or "cancelled" in self.finishes.values()

    def take(self, data: dict[str, Any]) -> None:
        """An event of a stream, or a whole answer."""
        if "error" in data:
            self.error = str(data["error"].get("code") or data["error"].get("message"))
        for choice in data.get("choices", ()):
            index = choice["index"]
            self.texts[index] = self.texts.get(index, "") + (choice.get("text") or "")
            if choice.get("finish_reason"):
                self.finishes[index] = choice["finish_reason"]
        self.usage = data.get("usage") or self.usage

    def judge(self) -> None:
        """Set `fault` where the end is not one that its fate allows."""
        if self.fault is not None or self.left or self.is_whole:
            return
        if self.errand.fate in CUT and self.is_cancelled:
            return
        self.fault = f"ended with {self.error or self.finishes}, {self.usage.get('completion_tokens')} tokens"


class Visitor:
    """`url` and `model` of the server; the client is shared by all visits."""

    def __init__(self, client: httpx.AsyncClient, url: str, model: str) -> None:
        self._client, self._url, self._model = client, url, model

    async def visit(self, errand: Errand) -> Visit:
        """A refusal with 429 or 503 is waited out. Nothing is raised for what the server does."""
        visit = Visit(errand)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._until_taken(visit)
        except TimeoutError:
            visit.fault = f"did not end within {TIMEOUT_S:g} s"
        except (httpx.HTTPError, ValueError, KeyError) as error:
            visit.fault = f"{type(error).__name__} while it was answered"
        visit.judge()
        return visit

    async def _until_taken(self, visit: Visit) -> None:
        for _ in range(MAX_TRIES):
            retry_after_s = await self._once(visit)
            if retry_after_s is None:
                return
            visit.refusals += 1
            await asyncio.sleep(min(retry_after_s, 2.0))
        visit.fault = f"was refused {MAX_TRIES} times"

    async def _once(self, visit: Visit) -> float | None:
        """Ask, with its fate beside. Who disconnects does so wherever the answer is by then."""
        fate = asyncio.create_task(self._bring_about(visit))
        asking = asyncio.create_task(self._ask(visit))
        try:
            waits_for = {asking, fate} if visit.errand.fate is Fate.DISCONNECT else {asking}
            await asyncio.wait(waits_for, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            visit.left = True
            return None
        finally:
            async with visit.ordering:  # what ends a request is an order's doing: its answer comes after that end
                for task in (asking, fate):
                    task.cancel()
            await asyncio.gather(asking, fate, return_exceptions=True)

    async def _ask(self, visit: Visit) -> float | None:
        """None when it was taken; else the seconds after which to try again."""
        errand = visit.errand
        async with self._client.stream(
            "POST",
            f"{self._url}/v1/completions",
            json=errand.body(self._model),
            headers={"X-Request-Id": errand.request_id},
            timeout=TIMEOUT_S,
        ) as answer:
            if answer.status_code in (429, 503):
                await answer.aread()
                return float(answer.headers.get("retry-after", 1))
            if answer.status_code != 200:
                self._take_error(visit, answer.status_code, await answer.aread())
                return None
            async for data in _answers(answer, stream=errand.stream):
                visit.take(data)
        return None

    def _take_error(self, visit: Visit, status: int, body: bytes) -> None:
        with contextlib.suppress(ValueError):
            visit.take(json.loads(body))
        if visit.error != CANCELLED_CODE:
            visit.fault = f"was answered with {status}: {error_message(body)[:200]}"

    async def _bring_about(self, visit: Visit) -> None:
        errand = visit.errand
        if errand.fate is Fate.LEFT_ALONE:
            return
        await asyncio.sleep(errand.after_s)
        match errand.fate:
            case Fate.CANCEL:
                await self._order(visit, Order.CANCEL)
            case Fate.PRIORITY:
                wanted = {"priority": -errand.priority + 2}
                await self._order(visit, Order.PRIORITY, wanted, told=wanted)
            case Fate.PARK:
                await self._order(visit, Order.PARK)
                await asyncio.sleep(errand.pause_s)
                while True:  # repeated: without it a request would be held for ever
                    if await self._order(visit, Order.UNPARK) in (200, 202, 404):
                        return
                    await asyncio.sleep(0.1)
            case Fate.PARK_THEN_UNPARK:
                terms = {"deadline_s": errand.pause_s, "then": "unpark"}
                await self._order(visit, Order.PARK_THEN_UNPARK, terms)
            case Fate.PARK_THEN_CANCEL:
                terms = {"deadline_s": errand.pause_s, "then": "cancel"}
                await self._order(visit, Order.PARK_THEN_CANCEL, terms)
            case _:
                return

    async def _order(
        self,
        visit: Visit,
        order: Order,
        body: Mapping[str, object] | None = None,
        told: Mapping[str, object] | None = None,
    ) -> int:
        """The status of the answer, 0 where there is none. One with 200 must say what is `told`."""
        method, action = CALLS[order]
        url = f"{self._url}/v1/requests/{visit.errand.request_id}{action}"
        try:
            async with visit.ordering:
                answer = await self._client.request(method, url, json=body, timeout=TIMEOUT_S)
        except httpx.HTTPError as error:
            visit.fault = f"{order} broke: {type(error).__name__}"
            return 0
        visit.answers.append((order, answer.status_code))
        if answer.status_code not in FAIR_ORDER_CODES:
            visit.fault = f"{order} was answered with {answer.status_code}: {error_message(answer.content)}"
        elif answer.status_code == httpx.codes.OK:
            said = answer.json()
            for name, value in (told or TOLD.get(order, {})).items():
                if said.get(name) != value:
                    visit.fault = visit.fault or f"{order} was answered with {name} {said.get(name)}, not {value}"
        return answer.status_code


async def _answers(answer: httpx.Response, *, stream: bool) -> AsyncIterator[dict[str, Any]]:
    if not stream:
        yield json.loads(await answer.aread())
        return
    parser = SseParser()
    async for block in answer.aiter_bytes():
        for event in parser.feed(block):
            if isinstance(event, Data) and not event.is_done:
                yield json.loads(event.text)
