import json
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from fastapi import FastAPI

from deploy.gateway import ServedModel, create_app
from tests.deploy.gateway.fakes import HandPlayedBackend, served_model


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
def chat_body() -> Callable[..., dict[str, object]]:
    def build(**more: object) -> dict[str, object]:
        return {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}], **more}

    return build


@pytest.fixture
def data_of() -> Callable[[str], list[object]]:
    """The JSON payloads of a stream, [DONE] left out."""

    def read(stream: str) -> list[object]:
        lines = [line[6:] for line in stream.split("\n\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    return read
