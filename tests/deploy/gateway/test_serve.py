"""The deployment under a real Ray Serve: streams, errors and disconnects through its proxy."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import httpx
import pytest

from deploy.request_ids import SERVE_LAYERS
from tests.deploy.gateway.fakes import TEMPLATE, byte_tokenizer
from workers.ports import free_port

CHAT = "/v1/chat/completions"
END_S = 60.0
RAY = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", **SERVE_LAYERS}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("model")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    port = free_port()
    # Socket paths below Ray's folder have about 60 characters of the 107 that there are.
    with tempfile.TemporaryDirectory(prefix="pk-", ignore_cleanup_errors=True) as ray_dir:
        command = [sys.executable, "-m", "tests.deploy.gateway.played_server", str(folder), ray_dir, str(port)]
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **RAY}
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            lines = iter(server.stdout.readline, "")
            assert any(line == "ready\n" for line in lines), "the server ended before it was ready"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stdin.close()
            server.wait(END_S)
            server.stdout.close()


def body(**more: object) -> dict[str, object]:
    return {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}], **more}


async def await_cancels(client: httpx.AsyncClient, number: int) -> None:
    async with asyncio.timeout(10):
        while (await client.get("/health")).json()["num_cancelled"] != number:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.ray
@pytest.mark.slow
async def test_answers_errors_and_disconnects_pass_serves_proxy(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        whole = await client.post(CHAT, json=body(max_tokens=4))
        assert whole.json()["choices"][0]["message"]["content"] == "abab"
        assert whole.json()["id"] == whole.headers["x-request-id"]
        assert whole.json()["id"].startswith("chatcmpl-")

        family = await client.post(CHAT, json=body(max_tokens=4, n=2), headers={"X-Request-Id": "family-1"})
        assert [choice["message"]["content"] for choice in family.json()["choices"]] == ["abab", "abab"]
        assert family.json()["id"] == family.headers["x-request-id"] == "family-1"

        async with client.stream("POST", CHAT, json=body(max_tokens=40, stream=True)) as stream:
            pieces = [piece async for piece in stream.aiter_bytes()]
        events = b"".join(pieces).decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        deltas = [json.loads(event[6:])["choices"][0]["delta"].get("content", "") for event in events[:-2]]
        assert "".join(deltas) == "ab" * 20
        assert len(pieces) > 3  # as they come, not all at the end

        nothing = await client.get("/nothing")
        assert nothing.json()["error"]["code"] == "route_not_found"
        assert nothing.headers["x-request-id"].startswith("req-")
        assert (await client.get("/health")).json()["num_cancelled"] == 0

        async with client.stream("POST", CHAT, json=body(stream=True)) as stream:
            await anext(stream.aiter_bytes())
        await await_cancels(client, 1)

        with pytest.raises(httpx.ReadTimeout):
            await client.post(CHAT, json=body(), timeout=1)
        await await_cancels(client, 2)

        page = await client.get("/metrics")
        assert page.status_code == 200
        assert all("ray_parkade_" in line for line in page.text.splitlines())

        full = await client.post(CHAT, json=body(priority=-1))
        assert (full.status_code, full.headers["retry-after"]) == (429, "5")
        assert full.json()["error"]["code"] == "queue_full"
