"""What clients get wrong, and the status, field and sentence each of it is answered with."""

import dataclasses
import json
from typing import Any

import httpx
import pytest

from deploy.gateway import GatewayLimits, create_app
from deploy.text import ChatTemplate
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, served_model

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


BAD_FIELDS: list[tuple[str, object]] = [
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", "1"),
    ("temperature", True),
    ("temperature", float("nan")),
    ("temperature", float("inf")),
    ("top_p", 0),
    ("top_p", 1.5),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", "10"),
    ("top_k", True),
    ("top_k", 2**31),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("repetition_penalty", 0),
    ("repetition_penalty", -1),
    ("presence_penalty", 2.5),
    ("frequency_penalty", -2.5),
    ("logit_bias", []),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"1": 101}),
    ("logit_bias", {"1": "5"}),
    ("logit_bias", {"1": True}),
    ("logit_bias", {"1": float("nan")}),
    ("logit_bias", {"300": 1}),
    ("logit_bias", {str(index): 0 for index in range(1025)}),
    ("seed", 2**63),
    ("seed", 1.0),
    ("seed", "1"),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", ["a", 1]),
    ("stop", ["x"] * 17),
    ("stop", "x" * 1025),
    ("stop", 5),
    ("max_tokens", 0),
    ("max_tokens", -5),
    ("max_tokens", 1.5),
    ("max_tokens", "10"),
    ("max_tokens", True),
    ("max_tokens", 10**400),
    ("ignore_eos", 1),
    ("ignore_eos", "true"),
    ("priority", 1.5),
    ("priority", "10"),
    ("priority", True),
    ("priority", 2**31),
    ("priority", -(2**31) - 1),
    ("n", 0),
    ("n", 129),
    ("n", 1.0),
    ("n", True),
    ("n", "1"),
    ("stream", "true"),
    ("stream", 1),
    ("stream_options", {"include_usage": True}),  # without "stream": true
    ("stream_options", []),
    ("model", 5),
    ("model", None),
    ("best_of", 2),
    ("logprobs", True),
    ("top_logprobs", 3),
    ("prompt_logprobs", 0),
    ("tools", [{"type": "function"}]),
    ("tool_choice", "required"),
    ("functions", [{}]),
    ("response_format", {"type": "json_object"}),
    ("modalities", ["audio"]),
    ("echo", True),
    ("stop_token_ids", [1]),
    ("chat_template", "{{ 1 }}"),
    ("guided_json", {"type": "object"}),
]


def with_field(body: dict[str, object], name: str, value: object) -> str:
    return json.dumps({**body, name: value})  # NaN and Infinity as Python writes them


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("name", "value"), BAD_FIELDS, ids=lambda value: repr(value)[:30])
async def test_a_bad_field_is_400_and_named(  # noqa: PLR0917
    path: str, name: str, value: object, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    body = chat_body() if path == CHAT else {"model": "org/tiny", "prompt": "x"}
    response = await client.post(path, content=with_field(body, name, value))
    error = error_of(response)
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", name)
    assert f"'{name}'" in error["message"]
    assert backend.submissions == []


async def test_a_message_states_the_bound_and_the_way_out(client: httpx.AsyncClient, chat_body: Body) -> None:
    error = error_of(await client.post(CHAT, json=chat_body(priority=1.5)))
    assert error["message"] == "'priority' must be an integer of 32 bits; higher wins, 0 is the default"


async def test_a_nested_field_is_named_by_its_path(client: httpx.AsyncClient, chat_body: Body) -> None:
    body = chat_body(stream=True, stream_options={"include_usage": 1})
    assert error_of(await client.post(CHAT, json=body))["param"] == "stream_options.include_usage"


async def test_max_completion_tokens_is_named_itself(client: httpx.AsyncClient, chat_body: Body) -> None:
    assert (
        error_of(await client.post(CHAT, json=chat_body(max_completion_tokens=0)))["param"] == "max_completion_tokens"
    )


@pytest.mark.parametrize(
    ("messages", "param", "code"),
    [
        ([], "messages", "empty_array"),
        ("hi", "messages", None),
        (None, "messages", None),
        (["hi"], "messages[0]", None),
        ([{"content": "hi"}], "messages[0].role", None),
        ([{"role": "robot", "content": "hi"}], "messages[0].role", None),
        ([{"role": "user"}], "messages[0].content", None),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": None}], "messages[1].content", None),
        ([{"role": "user", "content": 5}], "messages[0].content", None),
        ([{"role": "user", "content": []}], "messages[0].content", None),
        ([{"role": "user", "content": ["a"]}], "messages[0].content", None),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content", None),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "messages[0].tool_calls", None),
        ([{"role": "user", "content": "a", "name": 5}], "messages[0].name", None),
    ],
)
async def test_bad_messages(messages: object, param: str, code: str | None, client: httpx.AsyncClient) -> None:
    response = await client.post(CHAT, json={"model": "org/tiny", "messages": messages})
    error = error_of(response)
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)


@pytest.mark.parametrize(
    "prompt", ["", [], None, 5, ["a", "b"], [1, "a"], [True], [1.5], [-1], [300], [10**30], [[1], [2]], [[]], [["a"]]]
)
async def test_bad_prompts(prompt: object, client: httpx.AsyncClient) -> None:
    response = await client.post(TEXT, json={"model": "org/tiny", "prompt": prompt})
    assert (response.status_code, error_of(response)["param"]) == (400, "prompt")


@pytest.mark.parametrize(("path", "field"), [(CHAT, "messages"), (TEXT, "prompt")])
async def test_missing_fields_are_named(path: str, field: str, client: httpx.AsyncClient) -> None:
    assert error_of(await client.post(path, json={field: "x"}))["param"] == "model"
    error = error_of(await client.post(path, json={"model": "org/tiny"}))
    assert error["param"] == field
    assert f"'{field}' is required" in error["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"model": }', b'{"model": "\xff"}', b'{"model": "\\ud800"}', b"[" * 100_000, b"nonsense"],
    ids=["empty", "open", "no value", "not UTF-8", "lone surrogate", "deep", "word"],
)
async def test_a_body_that_is_no_json_is_400(body: bytes, client: httpx.AsyncClient) -> None:
    response = await client.post(CHAT, content=body)
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"3"])
async def test_a_body_that_is_no_object_is_400(body: bytes, client: httpx.AsyncClient) -> None:
    response = await client.post(CHAT, content=body)
    assert response.status_code == 400
    assert error_of(response)["message"] == "the request body must be a JSON object"


async def test_an_unknown_model_is_404(client: httpx.AsyncClient, chat_body: Body) -> None:
    response = await client.post(CHAT, json=chat_body(model="other"))
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (404, "model", "model_not_found")
    assert "'org/tiny'" in error["message"]


async def test_a_prompt_longer_than_the_model_is_400_with_both_numbers(client: httpx.AsyncClient) -> None:
    response = await client.post(TEXT, json={"model": "org/tiny", "prompt": "x" * 200, "max_tokens": 1})
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (400, "prompt", "context_length_exceeded")
    assert error["message"] == (
        "the prompt has 200 tokens and the model's length is 200 tokens, of which the answer needs at least 1; "
        "shorten the prompt"
    )


async def test_more_than_is_left_for_the_answer_is_400_with_all_numbers(client: httpx.AsyncClient) -> None:
    response = await client.post(TEXT, json={"model": "org/tiny", "prompt": "x" * 150, "max_tokens": 51})
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (400, "max_tokens", "context_length_exceeded")
    assert error["message"] == (
        "the model's length is 200 tokens, but 201 are asked for: 150 of the prompt and 51 of 'max_tokens'; "
        "shorten the prompt or ask for at most 50"
    )


async def test_a_prompt_longer_than_the_pool_says_so(backend: HandPlayedBackend, chat_body: Body) -> None:
    app = create_app(backend, served_model(pool_tokens=16))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        error = error_of(await client.post(CHAT, json=chat_body()))
    assert error["param"] == "messages"
    assert error["message"].startswith("the prompt has 21 tokens and the KV pool is 16 tokens")


async def test_a_conversation_the_template_refuses_is_400(backend: HandPlayedBackend, chat_body: Body) -> None:
    strict = ChatTemplate("{{ raise_exception('a system message comes first') }}")
    app = create_app(backend, dataclasses.replace(served_model(), template=strict))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.post(CHAT, json=chat_body())
    assert (response.status_code, error_of(response)["param"]) == (400, "messages")
    assert "a system message comes first" in error_of(response)["message"]


async def test_a_model_without_a_template_has_no_chat(backend: HandPlayedBackend, chat_body: Body) -> None:
    app = create_app(backend, dataclasses.replace(served_model(), template=None))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.post(CHAT, json=chat_body())
    assert (response.status_code, error_of(response)["param"]) == (400, "model")


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "found out"])
async def test_a_body_too_large_is_413(declared: bool, backend: HandPlayedBackend) -> None:
    app = create_app(backend, served_model(), GatewayLimits(max_body_bytes=100))

    async def pieces() -> Any:
        for _ in range(11):
            yield b" " * 10

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        response = await client.post(CHAT, content=b" " * 101 if declared else pieces())
    assert response.status_code == 413
    assert error_of(response)["message"] == "the request body is larger than 100 bytes; send a smaller one"


async def test_unknown_routes_and_methods_have_the_same_shape(client: httpx.AsyncClient) -> None:
    unknown = await client.get("/v2/nothing")
    assert (unknown.status_code, error_of(unknown)["code"]) == (404, "route_not_found")
    wrong = await client.get(CHAT)
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_bad_input_is_refused_before_a_stream_begins(client: httpx.AsyncClient, chat_body: Body) -> None:
    response = await client.post(CHAT, json=chat_body(stream=True, max_tokens=0))
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
