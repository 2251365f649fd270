"""Orders to living requests: what is asked of the backend, and every status and shape that comes back."""

import asyncio
import logging

import httpx
import pytest

from deploy.errors import BackendLost
from deploy.gateway import GatewayLimits, create_app
from scheduler.admission import HoldEnd, HoldTerms, WrongState
from tests.deploy.gateway.fakes import HandPlayedBackend, request_row, served_model

ONE = "/v1/requests/chatcmpl-1"
OBJECT = {
    "id": "chatcmpl-1",
    "object": "request",
    "state": "resident",
    "held": False,
    "deadline_s": None,
    "then": None,
    "cancelling": False,
    "priority": 0,
    "effective_priority": 0,
    "n": 1,
    "prompt_tokens": 5,
    "tokens": 12,
    "seats": 1,
    "pages": 1,
    "arena_pages": 0,
    "parks": 0,
    "recomputes": 0,
    "passes": 0,
    "waited_seconds": 0.25,
    "parked_seconds": 0.0,
    "age_seconds": 1.5,
    "slot": 0,
    "group": "group-0",
}


@pytest.fixture(autouse=True)
def living(backend: HandPlayedBackend) -> None:
    backend.rows = {"chatcmpl-1": request_row("chatcmpl-1")}


async def test_requests_are_listed(backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    backend.rows["b"] = request_row("b", slot=1, owner="another")
    assert (await client.get("/v1/requests")).json() == {"object": "list", "data": [OBJECT]}
    backend.rows = {}
    assert (await client.get("/v1/requests")).json() == {"object": "list", "data": []}


async def test_one_request_is_told(client: httpx.AsyncClient) -> None:
    response = await client.get(ONE)
    assert (response.status_code, response.json()) == (200, OBJECT)


async def test_a_held_request_tells_what_is_left_of_its_hold(
    backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    held = request_row(
        "chatcmpl-1", state="parked", held=True, hold_left_s=12.34567, then=HoldEnd.CANCEL, arena_pages=3, group_id=None
    )
    backend.rows = {"chatcmpl-1": held}
    told = (await client.get(ONE)).json()
    assert (told["state"], told["held"], told["deadline_s"], told["then"]) == ("parked", True, 12.346, "cancel")
    assert (told["arena_pages"], told["group"]) == (3, None)


async def test_a_priority_is_changed(backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    for priority in (7, -(2**31), 2**31 - 1):
        response = await client.patch(ONE, json={"priority": priority})
        assert (response.status_code, response.json()) == (200, OBJECT)
        assert backend.orders[-1] == ("priority", "chatcmpl-1", priority)


async def test_a_request_is_ended(backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    response = await client.delete(ONE)
    assert (response.status_code, response.json()) == (200, {**OBJECT, "cancelled": True})
    assert backend.orders == [("end", "chatcmpl-1")]


@pytest.mark.parametrize(
    ("body", "terms"),
    [
        (b"", HoldTerms()),
        (b"{}", HoldTerms()),
        (b'{"deadline_s": null, "then": null}', HoldTerms()),
        (b'{"deadline_s": 30}', HoldTerms(30.0)),
        (b'{"deadline_s": 0.5, "then": "unpark"}', HoldTerms(0.5)),
        (b'{"deadline_s": 1e9, "then": "cancel"}', HoldTerms(1e9, HoldEnd.CANCEL)),
    ],
)
async def test_a_request_is_parked_on_terms(
    body: bytes, terms: HoldTerms, backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    response = await client.post(f"{ONE}/park", content=body)
    assert (response.status_code, response.json()) == (200, OBJECT)
    assert backend.orders == [("park", "chatcmpl-1", terms, 5.0)]


@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_a_request_is_unparked(body: bytes, backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    response = await client.post(f"{ONE}/unpark", content=body)
    assert (response.status_code, response.json()) == (200, OBJECT)
    assert backend.orders == [("unpark", "chatcmpl-1")]


CALLS = [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/park"), ("POST", "/unpark")]


def body_of(method: str) -> dict[str, object] | None:
    return {"priority": 1} if method == "PATCH" else None


@pytest.mark.parametrize(("method", "tail"), CALLS)
@pytest.mark.parametrize("request_id", ["unknown", "a%20b", "x" * 129])
async def test_an_unknown_request_is_404(
    method: str, tail: str, request_id: str, backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    response = await client.request(method, f"/v1/requests/{request_id}{tail}", json=body_of(method))
    error = response.json()["error"]
    assert response.status_code == 404
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "request_not_found")
    assert backend.orders == []


@pytest.mark.parametrize(("method", "tail"), CALLS[1:])
async def test_a_state_that_does_not_allow_it_is_409_and_told(
    method: str, tail: str, backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    backend.order_refusal = WrongState("chatcmpl-1", "ending", "it was cancelled")
    response = await client.request(method, ONE + tail, json=body_of(method))
    assert response.status_code == 409
    assert response.json() == {
        "error": {
            "message": "request chatcmpl-1 is ending: it was cancelled",
            "type": "invalid_request_error",
            "param": None,
            "code": "wrong_state",
            "state": "ending",
        }
    }


@pytest.mark.parametrize(
    ("tail", "body", "param", "message"),
    [
        ("/park", '{"deadline_s": 0}', "deadline_s", "'deadline_s' must be a number of seconds in (0, 1000000000]"),
        ("/park", '{"deadline_s": -1}', "deadline_s", "leave it out to hold without end"),
        ("/park", '{"deadline_s": 1e10}', "deadline_s", "(0, 1000000000]"),
        ("/park", '{"deadline_s": NaN}', "deadline_s", "a number of seconds"),
        ("/park", '{"deadline_s": Infinity}', "deadline_s", "a number of seconds"),
        ("/park", '{"deadline_s": "30"}', "deadline_s", "a number of seconds"),
        ("/park", '{"deadline_s": true}', "deadline_s", "a number of seconds"),
        ("/park", '{"deadline_s": 1, "then": "stop"}', "then", '"unpark" or "cancel"'),
        ("/park", '{"then": "cancel"}', "then", "add 'deadline_s' or leave it out"),
        ("/park", '{"deadline": 5}', "deadline", "not a field of this body; known fields: 'deadline_s', 'then'"),
        ("/unpark", '{"deadline_s": 5}', "deadline_s", "not a field of this body; known fields: none"),
        ("", "{}", "priority", "'priority' is required: an integer of 32 bits; higher wins"),
        ("", '{"priority": null}', "priority", "'priority' must be an integer of 32 bits"),
        ("", '{"priority": 1.5}', "priority", "an integer of 32 bits"),
        ("", '{"priority": "1"}', "priority", "an integer of 32 bits"),
        ("", '{"priority": true}', "priority", "an integer of 32 bits"),
        ("", '{"priority": 2147483648}', "priority", "an integer of 32 bits"),
        ("", '{"priority": 1, "state": "parked"}', "state", "known fields: 'priority'"),
        ("", "[]", None, "the request body must be a JSON object"),
        ("", "", None, "the request body is not valid JSON"),
        ("/park", "nonsense", None, "the request body is not valid JSON"),
        ("/park", "[]", None, "the request body must be a JSON object"),
        ("/park", "null", None, "the request body must be a JSON object"),
    ],
)
async def test_a_bad_order_is_400_with_field_bound_and_way_out(  # noqa: PLR0917
    tail: str, body: str, param: str | None, message: str, backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    response = await client.request("POST" if tail else "PATCH", ONE + tail, content=body)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert message in error["message"]
    assert backend.orders == []


async def test_an_order_as_large_as_a_prompt_is_413(client: httpx.AsyncClient) -> None:
    response = await client.post(f"{ONE}/park", content=b" " * 65_537)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


async def test_a_lost_backend_is_503(backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    backend.order_refusal = BackendLost("the scheduler behind this gateway does not answer")
    response = await client.post(f"{ONE}/park")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "backend_lost")
    assert response.headers["retry-after"] == "1"


async def test_admission_that_does_not_answer_is_503(
    backend: HandPlayedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(request_id: str, owner: str | None) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(backend, "request", never)
    app = create_app(backend, served_model(), GatewayLimits(order_s=0.01))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.get(ONE)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "backend_lost")


async def test_an_unforeseen_error_is_500_and_its_log_has_neither_message_nor_id(
    backend: HandPlayedBackend, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    backend.order_refusal = RuntimeError("inside")
    with caplog.at_level(logging.ERROR):
        response = await client.post(f"{ONE}/park")
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
    assert "unexpected RuntimeError in park" in caplog.text
    assert "inside" not in caplog.text
    assert "chatcmpl-1" not in caplog.text


async def test_a_method_that_is_not_there_names_all_that_are(client: httpx.AsyncClient) -> None:
    response = await client.put(ONE)
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, PATCH")


async def test_the_interface_describes_its_orders(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()["paths"]
    park = described["/v1/requests/{request_id}/park"]["post"]["requestBody"]
    assert set(park["content"]["application/json"]["schema"]["properties"]) == {"deadline_s", "then"}
    assert park["required"] is False
    assert set(described["/v1/requests/{request_id}"]) == {"get", "patch", "delete"}
    assert {"/slots", "/slots/{slot}", "/metrics"} <= set(described)
