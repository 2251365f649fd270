"""The HTTP application: its door and routes, and OpenAI's error shape for what goes wrong on the way to them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from deploy.api_keys import ApiKeys
from deploy.errors import ApiError, Internal, InvalidRequest, MethodNotAllowed, NotFound, Unavailable
from deploy.gateway.backend import Backend
from deploy.gateway.caller import caller_of
from deploy.gateway.door import Door
from deploy.gateway.face import Face, FirstTokenMeter, NoMeter
from deploy.gateway.fields import CheckedBody
from deploy.gateway.limits import GatewayLimits
from deploy.gateway.metrics_page import MEDIA_TYPE, MetricsPage, MetricsUnavailable, NoMetrics, only_ours
from deploy.gateway.order_bodies import ParkOrder, PriorityOrder
from deploy.gateway.order_desk import OrderDesk
from deploy.gateway.responses import error_response, log_failure
from deploy.gateway.served_model import ServedModel
from deploy.request_ids import HEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class Fittings:
    """What an application may have beside its backend. Without `keys` everybody is let in; `tells_id` is off where the
    server round the application sends X-Request-Id back."""

    keys: ApiKeys | None = None
    tells_id: bool = True
    meter: FirstTokenMeter = field(default_factory=NoMeter)
    metrics_page: MetricsPage = field(default_factory=NoMetrics)


def create_app(
    backend: Backend, model: ServedModel, limits: GatewayLimits | None = None, fittings: Fittings | None = None
) -> FastAPI:
    """An application that owns nothing of `backend`: whoever made it closes it."""
    limits, fittings = limits or GatewayLimits(), fittings or Fittings()
    face = Face(backend, model, limits, fittings.meter)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await face.close()

    app = FastAPI(title="Parkade", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_middleware(Door, keys=fittings.keys, tells_id=fittings.tells_id)
    app.add_exception_handler(HTTPException, _tell_http_error)
    app.add_exception_handler(Exception, _unexpected_teller(tells_id=fittings.tells_id))
    _add_face(app, face)
    _add_orders(app, OrderDesk(backend, limits, model.max_tokens))
    _add_metrics(app, fittings.metrics_page)
    return app


def _add_face(app: FastAPI, face: Face) -> None:
    app.post("/v1/chat/completions", response_model=None)(face.chat)
    app.post("/v1/completions", response_model=None)(face.completion)
    app.get("/v1/models", response_model=None)(face.models)
    app.get("/v1/models/{model_id:path}", response_model=None)(face.model)
    app.get("/health", response_model=None)(face.health)


def _add_orders(app: FastAPI, desk: OrderDesk) -> None:
    one = "/v1/requests/{request_id}"
    app.get("/v1/requests", response_model=None)(desk.list_requests)
    app.get(one, response_model=None)(desk.get)
    app.patch(one, response_model=None, openapi_extra=_body(PriorityOrder, required=True))(desk.change)
    app.delete(one, response_model=None)(desk.end)
    app.post(f"{one}/park", response_model=None, openapi_extra=_body(ParkOrder, required=False))(desk.park)
    app.post(f"{one}/unpark", response_model=None)(desk.unpark)
    app.get("/slots", response_model=None)(desk.slots)
    app.post("/slots/{slot}", response_model=None)(desk.steer_slot)


def _add_metrics(app: FastAPI, page: MetricsPage) -> None:
    @app.get("/metrics", response_model=None)
    async def metrics() -> Response:
        """Parkade's metrics of this node, for Prometheus."""
        try:
            return Response(only_ours(await page.read()), media_type=MEDIA_TYPE)
        except MetricsUnavailable as error:
            return error_response(Unavailable(str(error), code="metrics_unavailable", retry_after_s=1))


def _body(schema: type[CheckedBody], *, required: bool) -> dict[str, Any]:
    """What /openapi.json says of a body that is not read by FastAPI."""
    content = {"application/json": {"schema": schema.model_json_schema()}}
    return {"requestBody": {"content": content, "required": required}}


async def _tell_http_error(request: Request, error: Exception) -> Response:
    """Errors of routing, in our shape and with their own headers (Allow)."""
    assert isinstance(error, HTTPException)
    route = f"{request.method} {request.url.path}"
    told: ApiError
    if error.status_code == 404:
        told = NotFound(f"there is no route {route}; see /openapi.json", code="route_not_found")
    elif error.status_code == 405:
        told = MethodNotAllowed(f"{route} is not allowed", code="method_not_allowed")
    else:
        told = InvalidRequest(str(error.detail))
    response = error_response(told)
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["Allow"] = ", ".join(sorted(_methods_of(request)))
    return response


def _methods_of(request: Request) -> set[str]:
    """Of all routes on this path; the router itself tells those of the first one only."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in routes for method in getattr(route, "methods", None) or ()}


def _unexpected_teller(*, tells_id: bool) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def tell(request: Request, error: Exception) -> Response:
        log_failure(request.url.path, error)
        response = error_response(Internal())
        if tells_id:  # this is outside the door, which does it else
            response.headers[HEADER] = caller_of(request.scope).request_id
        return response

    return tell
