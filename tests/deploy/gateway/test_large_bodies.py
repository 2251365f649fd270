"""Bodies that are small in bytes and large in values: refused before they cost anything, and in nobody's way."""

import asyncio
import threading
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from deploy.errors import ApiError, BodyTooLarge
from deploy.gateway import ServedModel, create_app, face
from deploy.gateway.body_values import MAX_FIELDS, MAX_VALUES, require_few_values
from deploy.gateway.chat_request import ChatRequest
from deploy.gateway.completion_request import CompletionRequest
from deploy.gateway.fields import MAX_MESSAGES, MAX_PARTS
from deploy.gateway.order_bodies import ParkOrder, PriorityOrder, UnparkOrder
from deploy.gateway.parsing import parse_body
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, says

CHAT = "/v1/chat/completions"
MESSAGE = b'{"role":"user","content":""}'
PART = b'{"type":"text","text":""}'


def listed(item: bytes, count: int) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


def chat_of(messages: bytes, more: bytes = b"") -> bytes:
    return b'{"model":"org/tiny","messages":' + messages + more + b"}"


def refusal(schema: Any, body: bytes, model: ServedModel | None = None) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_body(schema, body, model)
    return caught.value


@pytest.mark.parametrize("item", [b"1", b"{}", b'{"role":1,"content":1,"name":1}'], ids=["number", "empty", "wrong"])
def test_many_wrong_messages_are_one_message_of_errors(item: bytes) -> None:
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate_json(chat_of(listed(item, 1_000)))
    assert caught.value.error_count() <= 5
    assert {error["loc"][1] for error in caught.value.errors()} == {0}


@pytest.mark.parametrize("schema", [ParkOrder, UnparkOrder, PriorityOrder])
def test_many_unknown_fields_of_an_order_are_one_error(schema: Any) -> None:
    body = b"{" + b",".join(b'"x%d":1' % number for number in range(1_000)) + b"}"
    with pytest.raises(ValidationError) as caught:
        schema.model_validate_json(body)
    assert caught.value.error_count() == 1
    assert refusal(schema, body).param == "x0"


def test_a_long_unknown_name_is_cut() -> None:
    error = refusal(PriorityOrder, b'{"' + b"x" * 1_000 + b'":1}')
    assert error.message == f"'{'x' * 64}...' is not a field of this body; known fields: 'priority'"


def test_messages_and_parts_are_bounded() -> None:
    assert len(parse_body(ChatRequest, chat_of(listed(MESSAGE, MAX_MESSAGES))).messages) == MAX_MESSAGES
    error = refusal(ChatRequest, chat_of(listed(MESSAGE, MAX_MESSAGES + 1)))
    assert (error.param, error.message) == (
        "messages",
        "'messages' must be a list of at most 16384 messages, each an object with role and content",
    )
    in_parts = chat_of(b'[{"role":"user","content":' + listed(PART, MAX_PARTS) + b"}]")
    assert parse_body(ChatRequest, in_parts).messages[0].content == "\n" * (MAX_PARTS - 1)
    error = refusal(ChatRequest, chat_of(b'[{"role":"user","content":' + listed(PART, MAX_PARTS + 1) + b"}]"))
    assert (error.param, error.message) == (
        "messages[0].content",
        "'messages[0].content' must hold at most 16384 text parts",
    )


@pytest.mark.parametrize("last", [b"1", b'"wrong"'], ids=["good", "unseen"])
def test_token_ids_beyond_the_model_are_refused_uncounted(last: bytes, model: ServedModel) -> None:
    body = b'{"model":"org/tiny","prompt":[' + b"1," * 299 + last + b"]}"
    error = refusal(CompletionRequest, body, model)
    assert (error.status, error.param, error.code) == (400, "prompt", "context_length_exceeded")
    assert error.message.startswith("the prompt has 300 tokens and the model's length is 200 tokens")


@pytest.mark.parametrize(
    ("nested", "what"),
    [
        (listed(b"1", MAX_VALUES), "1048576 values"),
        (listed(b'"a"', MAX_VALUES), "1048576 values"),
        (listed(b"[]", MAX_FIELDS), "131072 objects, lists and fields"),
        (b"[" * (MAX_FIELDS + 1), "131072 objects, lists and fields"),
        (b"{" + b",".join([b'"a":1'] * MAX_FIELDS) + b"}", "131072 objects, lists and fields"),
    ],
    ids=["numbers", "strings", "lists", "deep", "fields"],
)
@pytest.mark.parametrize("name", [b"foo", b"tools", b"stop", b"logit_bias", b"messages"])
def test_too_many_values_are_413_wherever_they_stand(name: bytes, nested: bytes, what: str) -> None:
    error = refusal(ChatRequest, b'{"model":"m","' + name + b'":' + nested + b"}")
    assert (error.status, error.code) == (413, "body_too_large")
    assert error.message == f"the request body holds more than {what}; send a smaller one"


@pytest.mark.parametrize("text", [b"a,b:[c],{d}", rb"a\",b,\\\"[[::", b"\\\\"], ids=["marks", "quotes", "backslashes"])
def test_what_stands_in_strings_does_not_count(text: bytes) -> None:
    body = chat_of(b'[{"role":"user","content":"' + text * MAX_FIELDS + b'"}]')
    assert parse_body(ChatRequest, body).messages[0].role == "user"


def test_as_many_values_as_there_may_be_are_no_fault() -> None:
    require_few_values(b'{"prompt":' + listed(b"1", MAX_VALUES - 2) + b"}")
    with pytest.raises(BodyTooLarge):
        require_few_values(b'{"prompt":' + listed(b"1", MAX_VALUES - 1) + b"}")


@pytest.mark.parametrize("is_large", [True, False])
async def test_large_bodies_are_parsed_beside_the_event_loop(
    is_large: bool, backend: HandPlayedBackend, model: ServedModel, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def watched(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return parse_body(*args)

    monkeypatch.setattr(face, "parse_body", watched)
    backend.script = says("x")
    padding = " " * (40_000 if is_large else 10)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(backend, model)), base_url="http://parkade"
    ) as client:
        assert (await client.post(CHAT, json=chat_body(ignored=padding))).status_code == 200
    assert [thread is threading.current_thread() for thread in threads] == [not is_large]


async def test_a_stream_goes_on_while_a_large_body_is_parsed(
    backend: HandPlayedBackend, model: ServedModel, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_parsing, loop, may_go_on = asyncio.Event(), asyncio.get_running_loop(), threading.Event()

    def slow(schema: Any, body: bytes, model: ServedModel) -> Any:
        if len(body) > 40_000:
            loop.call_soon_threadsafe(is_parsing.set)
            assert may_go_on.wait(5)
        return parse_body(schema, body, model)

    monkeypatch.setattr(face, "parse_body", slow)
    backend.script = says("x")
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(backend, model)), base_url="http://parkade"
    ) as client:
        large = asyncio.create_task(client.post(CHAT, json=chat_body(ignored=" " * 40_000)))
        await is_parsing.wait()
        assert "[DONE]" in (await client.post(CHAT, json=chat_body(stream=True))).text
        may_go_on.set()
        assert (await large).status_code == 200
