"""The metrics page: of a node's page only what is ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from deploy.gateway import Fittings, create_app
from deploy.gateway.metrics_page import MetricsUnavailable, only_ours
from deploy.gateway.node_metrics import NodeMetrics
from tests.deploy.gateway.fakes import HandPlayedBackend, served_model

PAGE = """\
# HELP ray_tasks Current number of tasks
# TYPE ray_tasks gauge
ray_tasks{State="ray_parkade_"} 3.0
# HELP ray_parkade_parks_total Parks.
# TYPE ray_parkade_parks_total counter
ray_parkade_parks_total{reason="pressure"} 2.0
# HELP ray_parkadex Not ours.
ray_parkade 1.0
# EOF
"""
OURS = """\
# HELP ray_parkade_parks_total Parks.
# TYPE ray_parkade_parks_total counter
ray_parkade_parks_total{reason="pressure"} 2.0
"""


class Page:
    def __init__(self, answer: str | Exception) -> None:
        self._answer = answer

    async def read(self) -> str:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def ask(backend: HandPlayedBackend, page: Page | None) -> httpx.Response:
    fittings = Fittings() if page is None else Fittings(metrics_page=page)
    app: FastAPI = create_app(backend, served_model(), None, fittings)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        return await client.get("/metrics")


def test_a_page_without_ours_is_empty() -> None:
    assert only_ours("") == ""
    assert only_ours("# HELP ray_tasks x\nray_tasks 1\n") == ""


async def test_only_our_lines_are_told(backend: HandPlayedBackend) -> None:
    response = await ask(backend, Page(PAGE))
    assert (response.status_code, response.text) == (200, OURS)
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize("page", [None, Page(MetricsUnavailable("this node exports no metrics"))])
async def test_a_page_that_cannot_be_read_is_503(page: Page | None, backend: HandPlayedBackend) -> None:
    response = await ask(backend, page)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "metrics_unavailable")
    assert "exports no metrics" in response.json()["error"]["message"]
    assert response.headers["retry-after"] == "1"


@asynccontextmanager
async def agent(status: str, page: str) -> AsyncIterator[str]:
    """Ray's agent: answers whatever is asked once a connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(page)}\r\nconnection: close\r\n\r\n"
        writer.write((head + page).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/metrics"


async def test_the_nodes_page_is_fetched_from_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent("200 OK", PAGE) as url:
        monkeypatch.setattr("deploy.gateway.node_metrics._url_of_this_node", lambda: url)
        assert await NodeMetrics(5.0).read() == PAGE


async def test_an_agent_that_fails_or_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent("500 Internal Server Error", "") as url:
        monkeypatch.setattr("deploy.gateway.node_metrics._url_of_this_node", lambda: url)
        with pytest.raises(MetricsUnavailable, match="answers with status 500"):
            await NodeMetrics(5.0).read()
    with pytest.raises(MetricsUnavailable, match="does not answer: ConnectError"):
        await NodeMetrics(5.0).read()


async def test_without_ray_the_page_is_unavailable() -> None:
    with pytest.raises(MetricsUnavailable, match="not connected to Ray"):
        await NodeMetrics(5.0).read()
