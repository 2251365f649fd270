"""Orders from outside on a whole server: a chat that waits for a person, others' keys, the command line, a drain."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.conftest import END_S, ServerProcess, assert_gone, parkade_serve, shared_memory

pytestmark = [pytest.mark.e2e, pytest.mark.ray, pytest.mark.model, pytest.mark.slow]

ALICE, BOB = "alice-key-0123456789", "bob-key-0123456789abc"
CHAT = "trip-42"
BEFORE, WHOLE = 2, 320


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two ranks, two keys, and room for one long chat and a bit."""
    folder = tmp_path_factory.mktemp("orders")
    keys = folder / "keys"
    keys.write_text(f"# who may ask\nalice {ALICE}\nbob {BOB}\n")
    (folder / "token").write_text("a-token-for-the-administrator\n")
    (folder / "token").chmod(0o600)
    shared_before = shared_memory()
    options = (
        "--kv-pool-tokens",
        "416",
        "--host-ram",
        "64MiB",
        "--served-model-name",
        "smollm2",
        "--log-level",
        "info",
    )
    admin = ("--api-key-file", str(keys), "--admin-token-file", str(folder / "token"))
    with parkade_serve(folder, smollm2_dir, *options, *admin) as running:
        yield running
        family, session = running.family(), running.session_dir()
        running.process.terminate()
        assert running.process.wait(END_S) == 0, running.printed()
        assert_gone(running, family, session, shared_before)


def http_of(server: ServerProcess, key: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60.0, trust_env=False)


def parkade(server: ServerProcess, *words: str) -> Any:
    """The JSON that a command of the command line prints."""
    token = Path(server.log.name).parent / "token"
    where = ("--admin", f"127.0.0.1:{server.admin_port}", "--token-file", str(token))
    command = [sys.executable, "-c", "from deploy.cli import main; main()", *words, "--json", *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def chat(server: ServerProcess, key: str, request_id: str) -> AsyncIterator[str]:
    """The pieces of a greedy chat of `WHOLE` tokens as they come."""
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=300.0) as client:
        stream = await client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Plan a weekend in Paris and book a hotel."}],
            temperature=0,
            max_tokens=WHOLE,
            stream=True,
            extra_headers={"X-Request-Id": request_id},
            extra_body={"ignore_eos": True},
        )
        async for chunk in stream:
            assert chunk.id == request_id
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


async def first_pieces(pieces: AsyncIterator[str]) -> str:
    text = ""
    for _ in range(BEFORE):
        text += await anext(pieces)
    return text


async def rest(pieces: AsyncIterator[str]) -> str:
    return "".join([piece async for piece in pieces])


async def test_a_chat_that_waits_for_a_person_gives_its_memory_to_others_and_goes_on_at_the_same_token(
    server: ServerProcess,
) -> None:
    alone = await rest(chat(server, ALICE, "alone"))
    waiting = chat(server, ALICE, CHAT)
    text = await first_pieces(waiting)
    async with http_of(server, ALICE) as orders:
        held = (await orders.post(f"/v1/requests/{CHAT}/park", json={"deadline_s": 3600, "then": "cancel"})).json()
        assert (held["state"], held["held"], held["pages"], held["parks"]) == ("parked", True, 0, 1)
        assert held["arena_pages"] > 0
        again = (await orders.post(f"/v1/requests/{CHAT}/park")).json()
        assert (again["state"], again["deadline_s"], again["parks"]) == ("parked", None, 1)
        other = await rest(chat(server, BOB, "other"))
        assert other == alone
        assert (await orders.get(f"/v1/requests/{CHAT}")).json()["state"] == "parked"
        assert (await orders.post(f"/v1/requests/{CHAT}/unpark")).json()["held"] is False
        assert text + await rest(waiting) == alone
        async with asyncio.timeout(END_S):  # its end is told to the client first
            while (await orders.get(f"/v1/requests/{CHAT}")).status_code != 404:
                pass
        assert (await orders.post(f"/v1/requests/{CHAT}/unpark")).status_code == 404


async def test_a_key_sees_and_steers_its_own_requests_only(server: ServerProcess) -> None:
    mine = chat(server, ALICE, CHAT)
    await first_pieces(mine)
    async with http_of(server, ALICE) as alice, http_of(server, BOB) as bob, http_of(server, "wrong-key") as nobody:
        assert [row["id"] for row in (await alice.get("/v1/requests")).json()["data"]] == [CHAT]
        assert (await bob.get("/v1/requests")).json()["data"] == []
        assert (await bob.get("/slots")).json() == []
        assert (await bob.post(f"/v1/requests/{CHAT}/park")).status_code == 404
        assert (await bob.delete(f"/v1/requests/{CHAT}")).status_code == 404
        assert [(await nobody.get(path)).status_code for path in ("/v1/models", "/health", "/metrics")] == [401] * 3
        changed = (await alice.patch(f"/v1/requests/{CHAT}", json={"priority": 7})).json()
        assert (changed["priority"], changed["effective_priority"]) == (7, 7)
        slot = (await alice.get("/slots")).json()[0]
        parked = (await alice.post(f"/slots/{slot['id']}?action=park")).json()
        assert (parked["request_id"], parked["is_preempted"], parked["preempt_manual"]) == (CHAT, True, True)
        assert (await alice.delete(f"/v1/requests/{CHAT}")).json()["cancelled"] is True
    with pytest.raises(openai.APIError, match="cancelled"):
        await rest(mine)


async def test_the_command_line_steers_what_crosses_keys(server: ServerProcess) -> None:
    pieces = chat(server, BOB, "errand")
    text = await first_pieces(pieces)
    async with http_of(server, BOB) as bob:
        assert (await bob.post("/v1/requests/errand/park")).json()["deadline_s"] is None
    rows = await asyncio.to_thread(parkade, server, "ps")
    assert [(row["id"], row["state"], row["owner"]) for row in rows] == [("errand", "parked", "bob")]
    parked = await asyncio.to_thread(parkade, server, "park", "err", "--deadline", "600")
    assert (parked["state"], parked["held"], parked["then"], parked["parks"]) == ("parked", True, "unpark", 1)
    assert (await asyncio.to_thread(parkade, server, "top", "--once"))["requests"][0]["arena_pages"] > 0
    assert (await asyncio.to_thread(parkade, server, "priority", "errand", "-3"))["priority"] == -3
    await asyncio.to_thread(parkade, server, "drain")
    async with http_of(server, ALICE) as alice:
        refused = await alice.post("/v1/completions", json={"model": "smollm2", "prompt": "One, two,"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert int(refused.headers["retry-after"]) >= 1
    await asyncio.to_thread(parkade, server, "undrain")
    await asyncio.to_thread(parkade, server, "unpark", "errand")
    assert text + await rest(pieces) == await rest(chat(server, ALICE, "alone"))
    lines = [line for line in server.printed().splitlines() if "parked errand: " in line]
    assert len(lines) == 1
    assert re.search(
        r" INFO cluster\.chronicle: parked errand: tier 0, \d+ tokens, \d+ pages, reason explicit, mode copy", lines[0]
    )


async def test_ids_that_nobody_chose_are_the_server_s_own_and_say_what_they_name(server: ServerProcess) -> None:
    async with http_of(server, ALICE) as client:
        answer = await client.post("/v1/completions", json={"model": "smollm2", "prompt": "One,", "max_tokens": 1})
    assert re.fullmatch(r"cmpl-[0-9a-f]{32}", answer.json()["id"])
    assert answer.headers.get_list("x-request-id") == [answer.json()["id"]]


async def test_three_choices_are_the_three_requests_with_the_seeds_after_one_another(server: ServerProcess) -> None:
    body = {
        "model": "smollm2",
        "prompt": "Once upon a time, in a small harbour town,",
        "max_tokens": 24,
        "temperature": 1,
    }
    async with http_of(server, ALICE) as client:
        family = (await client.post("/v1/completions", json=body | {"n": 3, "seed": 11})).json()
        singles = [(await client.post("/v1/completions", json=body | {"seed": 11 + i})).json() for i in range(3)]
    assert [choice["index"] for choice in family["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in family["choices"]] == [single["choices"][0]["text"] for single in singles]
    assert family["usage"]["prompt_tokens"] == singles[0]["usage"]["prompt_tokens"]
    assert family["usage"]["completion_tokens"] == sum(single["usage"]["completion_tokens"] for single in singles)


async def test_parks_stand_in_the_metrics_of_ray(server: ServerProcess) -> None:
    async with http_of(server, ALICE) as client:
        pieces = chat(server, ALICE, "counted")
        await first_pieces(pieces)
        await client.post("/v1/requests/counted/park")
        await client.post("/v1/requests/counted/unpark")
        await rest(pieces)
        async with asyncio.timeout(END_S):
            while True:  # Ray tells its page a few seconds later
                page = await client.get("/metrics")
                lines = page.text.splitlines()
                if any(line.startswith("ray_parkade_parks_total{") and 'reason="explicit"' in line for line in lines):
                    return
                await asyncio.sleep(0.5)
