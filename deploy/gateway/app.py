"""The HTTP application: routes, and OpenAI's error shape for everything that goes wrong on the way to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from deploy.errors import ApiError, Internal, InvalidRequest, MethodNotAllowed, NotFound
from deploy.gateway.backend import Backend
from deploy.gateway.face import Face
from deploy.gateway.limits import GatewayLimits
from deploy.gateway.responses import error_response, log_failure
from deploy.gateway.served_model import ServedModel


def create_app(backend: Backend, model: ServedModel, limits: GatewayLimits | None = None) -> FastAPI:
    """An application that owns nothing of `backend`: whoever made it closes it."""
    face = Face(backend, model, limits or GatewayLimits())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await face.close()

    app = FastAPI(title="Parkade", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_exception_handler(HTTPException, _tell_http_error)
    app.add_exception_handler(Exception, _tell_unexpected)

    @app.post("/v1/chat/completions", response_model=None)
    async def chat_completions(request: Request) -> Response:
        return await face.chat(request)

    @app.post("/v1/completions", response_model=None)
    async def completions(request: Request) -> Response:
        return await face.completion(request)

    app.get("/v1/models", response_model=None)(face.models)
    app.get("/v1/models/{model_id:path}", response_model=None)(face.model)
    app.get("/health", response_model=None)(face.health)
    return app


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
    return response


async def _tell_unexpected(request: Request, error: Exception) -> Response:
    log_failure(request.url.path, error)
    return error_response(Internal())
