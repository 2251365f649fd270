"""What the routes of living requests do: tell of them, park, unpark, end them, change their priority.

Who asks sees and steers only what was submitted under the same API key; all else is unknown to him. Orders are
idempotent: to park what is held replaces its terms, to unpark what is not held changes nothing.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from deploy.errors import BackendLost, InvalidRequest, NotFound, NotSupported
from deploy.gateway.answering import told
from deploy.gateway.backend import Orders
from deploy.gateway.caller import caller_of, is_request_id
from deploy.gateway.fields import CheckedBody
from deploy.gateway.limits import GatewayLimits
from deploy.gateway.order_bodies import ParkOrder, PriorityOrder, UnparkOrder
from deploy.gateway.parsing import parse_body, read_body
from deploy.gateway.request_object import request_object, slot_object
from scheduler.admission import HoldTerms, RequestRow

BodyT = TypeVar("BodyT", bound=CheckedBody)
T = TypeVar("T")

# Orders are small; a park order has some sixty bytes.
_MAX_BODY_BYTES = 64 * 2**10
_FILE_ACTIONS = ("save", "restore", "erase")


class OrderDesk:
    """`n_ctx` is what a slot is told to hold: the longest that prompt and answer can be, in tokens."""

    def __init__(self, orders: Orders, limits: GatewayLimits, n_ctx: int) -> None:
        self._orders = orders
        self._limits = limits
        self._n_ctx = n_ctx

    @told
    async def list_requests(self, request: Request) -> Response:
        """Living requests, in order of arrival."""
        rows = await self._rows(request)
        return JSONResponse({"object": "list", "data": [request_object(row) for row in rows]})

    @told
    async def get(self, request: Request, request_id: str) -> Response:
        """One living request."""
        return _shown(await self._asked(self._orders.request(_known(request_id), _owner(request))))

    @told
    async def change(self, request: Request, request_id: str) -> Response:
        """Change its priority, in whatever state it is."""
        order = parse_body(PriorityOrder, await read_body(request, _MAX_BODY_BYTES))
        call = self._orders.set_priority(_known(request_id), _owner(request), order.priority)
        return _shown(await self._asked(call))

    @told
    async def end(self, request: Request, request_id: str) -> Response:
        """Cancel it; its own answer ends with the error request_cancelled."""
        row = await self._asked(self._orders.end(_known(request_id), _owner(request)))
        return JSONResponse({**request_object(row), "cancelled": True})

    @told
    async def park(self, request: Request, request_id: str) -> Response:
        """Free its pages and its seat, until it is unparked."""
        order = await _optional(ParkOrder, request)
        return _shown(await self._park(_known(request_id), _owner(request), order.terms))

    @told
    async def unpark(self, request: Request, request_id: str) -> Response:
        """Put it back in line."""
        await _optional(UnparkOrder, request)
        return _shown(await self._unpark(_known(request_id), _owner(request)))

    # ---- llama.cpp's view

    @told
    async def slots(self, request: Request) -> Response:
        """Living requests as llama.cpp's slots, in order of their numbers."""
        rows = sorted(await self._rows(request), key=lambda row: row.slot)
        return JSONResponse([slot_object(row, self._n_ctx) for row in rows])

    @told
    async def steer_slot(self, request: Request, slot: str) -> Response:
        """Park or unpark the request in a slot, with ?action=park or ?action=unpark."""
        # Looked up once: the order then goes by the request's id, whoever has the slot by then.
        action, number = _action(request), _slot_number(slot)
        found = [row for row in await self._rows(request) if row.slot == number]
        if not found:
            raise NotFound(f"no live request is in slot {number}; GET /slots lists them", code="slot_not_found")
        request_id, owner = found[0].request_id, _owner(request)
        if action == "park":
            row = await self._park(request_id, owner, HoldTerms())
        else:
            row = await self._unpark(request_id, owner)
        return JSONResponse(slot_object(row, self._n_ctx))

    # ---- to the backend

    async def _rows(self, request: Request) -> list[RequestRow]:
        return await self._asked(self._orders.requests(_owner(request)))

    async def _park(self, request_id: str, owner: str, terms: HoldTerms) -> RequestRow:
        return await self._asked(self._orders.park(request_id, owner, terms, self._limits.park_wait_s))

    async def _unpark(self, request_id: str, owner: str) -> RequestRow:
        return await self._asked(self._orders.unpark(request_id, owner))

    async def _asked(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._limits.order_s):
                return await call
        except TimeoutError:
            raise BackendLost(f"admission has not answered within {self._limits.order_s:g} s") from None


def _shown(row: RequestRow) -> Response:
    return JSONResponse(request_object(row))


def _owner(request: Request) -> str:
    return caller_of(request.scope).owner


def _known(request_id: str) -> str:
    """Raises `NotFound` for what cannot be an id, without repeating it."""
    if not is_request_id(request_id):
        raise NotFound("no live request has such an id; GET /v1/requests lists them", code="request_not_found")
    return request_id


async def _optional(schema: type[BodyT], request: Request) -> BodyT:
    """No body is as good as an empty object."""
    return parse_body(schema, await read_body(request, _MAX_BODY_BYTES) or b"{}")


def _action(request: Request) -> str:
    action = request.query_params.get("action")
    if action in _FILE_ACTIONS:
        raise NotSupported(
            f"slots are not saved to files here, so there is no action '{action}'; 'park' and 'unpark' move a request "
            "to host RAM and back",
            param="action",
            code="not_supported",
        )
    if action not in ("park", "unpark"):
        raise InvalidRequest("the query must say action=park or action=unpark", param="action")
    return action


def _slot_number(slot: str) -> int:
    if not (slot.isascii() and slot.isdigit() and len(slot) <= 9):
        raise InvalidRequest("a slot is a number from 0 on; GET /slots lists them", param="slot")
    return int(slot)
