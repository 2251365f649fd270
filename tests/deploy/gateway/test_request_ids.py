"""The id of a request: the client's own or one of ours, and always told."""

import hashlib
import importlib

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from deploy.api_keys import ApiKeys
from deploy.gateway import Fittings, create_app
from deploy.request_ids import SERVE_LAYERS, IdStamp, serve_layers
from scheduler.admission import DuplicateRequest
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, OpenCall, says, served_model

CHAT = "/v1/chat/completions"
HEADER = "X-Request-Id"


@pytest.mark.parametrize("given", ["a", "Order.66_of-2026", "x" * 128])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_clients_id_is_the_completions(
    given: str, stream: bool, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    response = await client.post(CHAT, json=chat_body(stream=stream), headers={HEADER: given})
    assert response.status_code == 200
    assert response.headers[HEADER] == given
    assert backend.submissions[0].request_id == given
    assert f'"id":"{given}"' in response.text


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a/b", "ä", "a\tb", "a;b"])
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/nothing"])
async def test_what_cannot_be_an_id_is_400_and_not_repeated(
    given: str, path: str, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    method = "POST" if path == CHAT else "GET"
    json = chat_body() if path == CHAT else None
    response = await client.request(method, path, json=json, headers=[(HEADER.encode(), given.encode())])
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", HEADER)
    assert "1 to 128 letters, digits, dots, dashes or underscores" in error["message"]
    assert response.headers[HEADER].startswith("req-")
    assert backend.submissions == []


async def test_an_id_in_use_is_409(backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body) -> None:
    backend.refusal = DuplicateRequest("mine")
    response = await client.post(CHAT, json=chat_body(), headers={HEADER: "mine"})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (409, "request_id_in_use")
    assert set(error) == {"message", "type", "param", "code"}
    assert response.headers[HEADER] == "mine"
    assert backend.cancelled == []


async def test_an_id_of_ours_is_told_in_the_header_too(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    response = await client.post(CHAT, json=chat_body())
    assert response.headers[HEADER] == response.json()["id"] == backend.submissions[0].request_id


async def test_the_id_comes_with_the_headers_of_a_stream_before_its_first_token(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(stream=True))
    start = await call.next_message()
    told = dict(start["headers"])[b"x-request-id"].decode()
    assert told == backend.submissions[0].request_id
    call.hang_up()
    await call.task


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/health", 200), ("GET", "/nothing", 404), ("PUT", CHAT, 405), ("POST", CHAT, 400)],
)
async def test_every_answer_has_an_id(method: str, path: str, status: int, client: httpx.AsyncClient) -> None:
    made = await client.request(method, path)
    assert made.status_code == status
    assert made.headers[HEADER].startswith("chatcmpl-" if status == 400 else "req-")
    given = await client.request(method, path, headers={HEADER: "mine"})
    assert (given.status_code, given.headers[HEADER]) == (status, "mine")


async def test_an_answer_to_what_nobody_foresaw_has_its_id_as_well(app: FastAPI) -> None:
    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("inside")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://parkade") as client:
        response = await client.get("/broken", headers={HEADER: "mine"})
    assert (response.status_code, response.headers[HEADER]) == (500, "mine")
    assert "inside" not in response.text


async def ids_before_the_application(path: str, headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    """As the layer hands them on."""
    seen: list[bytes] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend(value for name, value in scope["headers"] if name == b"x-request-id")

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        raise AssertionError("nothing is sent")

    await IdStamp(application)({"type": "http", "path": path, "headers": headers}, receive, send)
    return seen


@pytest.mark.parametrize(("path", "prefix"), [(CHAT, "chatcmpl-"), ("/v1/completions", "cmpl-"), ("/health", "req-")])
async def test_before_serve_a_request_gets_an_id_of_ours(path: str, prefix: str) -> None:
    (first,) = await ids_before_the_application(path, [(b"host", b"x")])
    (second,) = await ids_before_the_application(path, [])
    assert first.decode().startswith(prefix)
    assert len(first) == len(prefix) + 32
    assert first != second


@pytest.mark.parametrize("keyed", [True, False])
async def test_an_id_that_is_no_text_is_told_by_the_door(keyed: bool, backend: HandPlayedBackend) -> None:
    keys = ApiKeys({hashlib.sha256(b"k" * 16).digest(): "alice"}) if keyed else None
    app = create_app(backend, served_model(), None, Fittings(keys=keys, tells_id=False))

    async def as_serve_does(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert all(value.decode() is not None for _, value in scope["headers"])
        await app(scope, receive, send)

    transport = httpx.ASGITransport(IdStamp(as_serve_does))
    headers = [(b"x-request-id", b"\xff\xfe"), (b"serve_multiplexed_model_id", b"\xff"), (b"user-agent", b"\xff")]
    async with httpx.AsyncClient(transport=transport, base_url="http://parkade") as client:
        response = await client.get("/v1/models", headers=headers)
    error = response.json()["error"]
    told = (response.status_code, error["type"], error["code"], error["param"])
    assert told == (
        (401, "invalid_request_error", "invalid_api_key", None)
        if keyed
        else (400, "invalid_request_error", None, HEADER)
    )


async def test_before_serve_what_it_can_decode_stays_and_ids_are_ascii() -> None:
    assert await ids_before_the_application(CHAT, [(b"X-Request-Id".lower(), "ä".encode())]) == [b"??"]
    seen: list[Scope] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def nothing() -> Message:
        raise AssertionError("nothing is read")

    async def nowhere(message: Message) -> None:
        raise AssertionError("nothing is sent")

    headers = [(b"user-agent", "ä".encode()), (b"x-request-id", b"mine")]
    await IdStamp(application)({"type": "http", "path": CHAT, "headers": headers}, nothing, nowhere)
    assert seen[0]["headers"] == headers


@pytest.mark.parametrize("path", ["/-/healthz", "/-/routes", "/-/"])
async def test_serves_own_pages_are_not_there(path: str) -> None:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("Serve would answer")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(IdStamp(serve)), base_url="http://parkade") as client:
        response = await client.get(path)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "route_not_found")
    assert response.headers[HEADER].startswith("req-")


def test_serve_finds_the_layer_by_its_name() -> None:
    module, _, name = SERVE_LAYERS["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].rpartition(".")
    assert getattr(importlib.import_module(module), name) is serve_layers
    assert [layer.cls for layer in serve_layers()] == [IdStamp]


async def test_before_serve_an_id_of_the_clients_stays() -> None:
    assert await ids_before_the_application(CHAT, [(b"x-request-id", b"mine")]) == [b"mine"]


async def test_where_serve_tells_the_id_the_application_does_not(backend: HandPlayedBackend) -> None:
    app = create_app(backend, served_model(), None, Fittings(tells_id=False))

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("inside")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://parkade") as client:
        for path in ("/v1/models", "/nothing", "/broken"):
            assert HEADER not in (await client.get(path, headers={HEADER: "mine"})).headers
