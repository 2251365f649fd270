"""An application over a hand-played backend, and a client that reaches it without a socket."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from deploy.gateway import ServedModel, create_app
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, served_model


@pytest.fixture
async def backend() -> HandPlayedBackend:
    return HandPlayedBackend()


@pytest.fixture(scope="session")
def model() -> ServedModel:
    return served_model()


@pytest.fixture
def app(backend: HandPlayedBackend, model: ServedModel) -> FastAPI:
    return create_app(backend, model)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        yield client


@pytest.fixture
def chat_body() -> Body:
    def build(**more: object) -> dict[str, object]:
        return {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}], **more}

    return build
