"""The routes that only tell."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from deploy.errors import BackendLost
from deploy.gateway import GatewayLimits, create_app
from scheduler.engine.loop import PROBE_PATIENCE_S
from tests.deploy.gateway.fakes import HandPlayedBackend, served_model

CARD = {
    "id": "org/tiny",
    "object": "model",
    "created": 1_700_000_000,
    "owned_by": "parkade",
    "max_model_len": 200,
    "priority": "higher wins",
}


async def test_the_model_is_listed_with_its_length_and_the_direction_of_priority(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/models")).json() == {"object": "list", "data": [CARD]}


async def test_a_model_is_found_by_an_id_with_a_slash(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/models/org/tiny")).json() == CARD
    missing = await client.get("/v1/models/org")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_health_tells_the_pool(client: httpx.AsyncClient) -> None:
    response = await client.get("/health")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "model": "org/tiny", "pages_total": 64, "pages_free": 60}


@pytest.mark.parametrize("broken", [BackendLost("no engine is connected"), RuntimeError("inside")])
async def test_health_fails_when_the_backend_does(
    broken: Exception, backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    backend.broken = broken
    response = await client.get("/health")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "inside" not in response.text


async def test_health_fails_when_the_step_loop_does_not_answer(
    backend: HandPlayedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stuck() -> Mapping[str, Any]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(backend, "status", stuck)
    app = create_app(backend, served_model(), GatewayLimits(health_s=0.01))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.get("/health")
    assert response.status_code == 503
    assert response.json()["error"]["message"] == "the engine has not answered within 0.01 s"


def test_health_waits_longer_than_an_engine_that_is_long_at_work_needs_to_say_so() -> None:
    assert GatewayLimits().health_s > PROBE_PATIENCE_S
