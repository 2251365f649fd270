"""API keys: the file, the door, and that nobody learns a key."""

import logging
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from deploy.api_keys import ApiKeys, BadApiKeys, first_key, load_api_keys
from deploy.gateway import Fittings, create_app
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, request_row, says, served_model

CHAT = "/v1/chat/completions"
ALICE = "sk-alice-0123456789"
ANON = "sk-nobody-0123456789"
FILE = f"""
# keys of the house
alice {ALICE}

  {ANON}
"""


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(FILE)
    return path


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "keys"
    path.write_text(text)
    return path


# ---- the file


def test_a_keys_owner_is_its_name_or_a_short_digest(key_file: Path) -> None:
    keys = load_api_keys(key_file)
    assert len(keys) == 2
    assert keys.owner_of(ALICE) == "alice"
    assert keys.owner_of(ANON) == "sha256:e993c9a895c2"
    assert keys.owner_of(ALICE + "x") is None
    assert keys.owner_of("") is None


def test_two_keys_of_one_name_have_one_owner(tmp_path: Path) -> None:
    keys = load_api_keys(written(tmp_path, f"alice {ALICE}\nalice {ANON}\n"))
    assert keys.owner_of(ALICE) == keys.owner_of(ANON) == "alice"


def test_the_first_key_is_one_that_is_taken(key_file: Path) -> None:
    assert first_key(key_file) == ALICE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n# none\n", "holds no key; write one a line, or serve without keys"),
        (f"{ALICE}\nshort-key-of-15\n", "line 2: the key has 15 characters; it must have 16 to 512"),
        (f"{'x' * 513}\n", "line 1: the key has 513 characters; it must have 16 to 512"),
        (f"{ALICE}\n\nbob {ALICE}\n", "line 3: the same key as in line 1; give each key once"),
        (f"bob {ALICE} extra\n", "line 1: 3 words; write a key, or a name and a key"),
        (f"b/ob {ALICE}\n", "line 1: a name is 1 to 64 letters, digits, dots, dashes or underscores"),
        ("sk-älice-0123456789\n", "line 1: a key may hold visible ASCII characters only, for it travels in a header"),
    ],
)
def test_a_bad_line_is_refused_by_its_number_and_never_shown(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadApiKeys) as caught:
        load_api_keys(written(tmp_path, text))
    assert str(caught.value).endswith(message)
    assert not any(word in str(caught.value) for word in (ALICE, "short-key", "älice"))


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadApiKeys, match="cannot be read: No such file or directory"):
        load_api_keys(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff\n")
    with pytest.raises(BadApiKeys, match="cannot be read: it is not UTF-8"):
        load_api_keys(tmp_path / "binary")


def test_keys_are_not_in_what_is_printed_of_them(key_file: Path) -> None:
    keys = load_api_keys(key_file)
    assert repr(keys) == "ApiKeys(2 keys)"
    assert ALICE not in repr(vars(keys))
    assert ALICE not in repr(Fittings(keys=keys))


# ---- the door


@pytest.fixture
def guarded(backend: HandPlayedBackend, key_file: Path) -> FastAPI:
    return create_app(backend, served_model(), None, Fittings(keys=load_api_keys(key_file)))


def client_of(app: FastAPI, authorization: str | None = None) -> httpx.AsyncClient:
    headers = {} if authorization is None else {"Authorization": authorization}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade", headers=headers)


ROUTES = [
    ("POST", CHAT),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/org/tiny"),
    ("GET", "/v1/requests"),
    ("DELETE", "/v1/requests/a"),
    ("POST", "/v1/requests/a/park"),
    ("GET", "/slots"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nothing"),
    ("OPTIONS", CHAT),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_without_a_key_nothing_is_told(method: str, path: str, guarded: FastAPI) -> None:
    async with client_of(guarded) as client:
        response = await client.request(method, path)
    assert response.status_code == 401
    assert response.json() == {
        "error": {
            "message": "this server asks for an API key; send it in the header Authorization: Bearer KEY",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }
    assert response.headers["www-authenticate"] == 'Bearer realm="parkade"'
    assert response.headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", f"Basic {ALICE}", ALICE])
async def test_what_is_no_bearer_key_is_as_good_as_none(authorization: str, guarded: FastAPI) -> None:
    async with client_of(guarded, authorization) as client:
        response = await client.get("/v1/models")
    assert (response.status_code, response.headers["www-authenticate"]) == (401, 'Bearer realm="parkade"')


@pytest.mark.parametrize("wrong", [ALICE[:-1], ALICE + "x", ALICE.upper(), "alice", f"alice {ALICE}", "§" * 20])
async def test_a_wrong_key_is_401_and_not_repeated(
    wrong: str, guarded: FastAPI, backend: HandPlayedBackend, chat_body: Body, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with client_of(guarded) as client:
            headers = [(b"authorization", b"Bearer " + wrong.encode())]
            response = await client.post(CHAT, json=chat_body(), headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Bearer realm="parkade", error="invalid_token"'
    assert response.json()["error"]["message"] == "the API key is not one of this server's; ask its operator for one"
    assert wrong not in response.text
    assert wrong not in caplog.text
    assert backend.submissions == []


@pytest.mark.parametrize(("key", "owner"), [(ALICE, "alice"), (ANON, "sha256:e993c9a895c2")])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_a_key_lets_in_and_names_the_owner(  # noqa: PLR0917
    key: str, owner: str, scheme: str, guarded: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    backend.script = says("x")
    async with client_of(guarded, f"{scheme} {key}") as client:
        response = await client.post(CHAT, json=chat_body())
    assert response.status_code == 200
    assert backend.submissions[0].owner == owner


async def test_a_refusal_carries_the_clients_id(guarded: FastAPI) -> None:
    async with client_of(guarded) as client:
        assert (await client.get("/health", headers={"X-Request-Id": "mine"})).headers["x-request-id"] == "mine"


async def test_who_has_no_key_learns_nothing_of_the_rest_of_his_request(guarded: FastAPI) -> None:
    async with client_of(guarded) as client:
        assert (await client.get("/health", headers={"X-Request-Id": "a b"})).status_code == 401


async def test_without_a_file_everybody_is_let_in_as_nobody(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    assert (await client.post(CHAT, json=chat_body(), headers={"Authorization": "Bearer any"})).status_code == 200
    assert backend.submissions[0].owner == ""


async def test_a_key_sees_and_steers_its_own_requests_only(guarded: FastAPI, backend: HandPlayedBackend) -> None:
    backend.rows = {"hers": request_row("hers", owner="alice"), "his": request_row("his", owner="bob", slot=1)}
    async with client_of(guarded, f"Bearer {ALICE}") as client:
        listed = (await client.get("/v1/requests")).json()["data"]
        assert [each["id"] for each in listed] == ["hers"]
        assert [each["id"] for each in (await client.get("/slots")).json()] == [0]
        calls = [
            client.get("/v1/requests/his"),
            client.patch("/v1/requests/his", json={"priority": 1}),
            client.delete("/v1/requests/his"),
            client.post("/v1/requests/his/park"),
            client.post("/v1/requests/his/unpark"),
            client.post("/slots/1?action=park"),
        ]
        answers = [await call for call in calls]
    assert [answer.status_code for answer in answers] == [404] * 6
    assert backend.orders == []


def test_keys_can_be_made_of_digests_alone() -> None:
    assert ApiKeys({}).owner_of(ALICE) is None
