"""Several choices of one prompt: streams, whole answers, ends and usage, each right for each choice."""

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from deploy.gateway import create_app
from scheduler.messages import FinishReason, Notice, Submission, TokenEvent
from tests.deploy.gateway.fakes import EOS, Body, HandPlayedBackend, OpenCall, says, served_model

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def play(*events: tuple[int, str, FinishReason | None], **more: Any) -> Any:
    """A script of (choice, text, finish) in order."""

    def script(submission: Submission) -> list[TokenEvent]:
        name = submission.request_id
        return [
            TokenEvent(request_id=name, choice=choice, tokens=tuple(text.encode()), finish=finish, **more)
            for choice, text, finish in events
        ]

    return script


def chunks_of(text: str) -> list[dict[str, Any]]:
    events = text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event[6:]) for event in events[:-2] if event.startswith("data: ")]


async def test_the_choices_reach_admission_as_one_request_with_one_priority(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    await client.post(CHAT, json=chat_body(n=3, priority=2, seed=7))
    (submission,) = backend.submissions
    assert (submission.n, submission.priority, submission.sampling.seed) == (3, 2, 7)


async def test_a_whole_answer_has_its_choices_in_index_order_with_an_end_each(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = play(
        (1, "one", FinishReason.LENGTH), (2, "t", None), (0, "zero", FinishReason.STOP), (2, "wo", FinishReason.STOP)
    )
    answer = (await client.post(CHAT, json=chat_body(n=3))).json()
    choices = answer["choices"]
    assert [(each["index"], each["message"]["content"], each["finish_reason"]) for each in choices] == [
        (0, "zero", "stop"),
        (1, "one", "length"),
        (2, "two", "stop"),
    ]
    num_prompt = len(backend.submissions[0].prompt_tokens)
    assert answer["usage"]["prompt_tokens"] == num_prompt
    assert answer["usage"]["completion_tokens"] == 10
    assert answer["usage"]["total_tokens"] == num_prompt + 10


async def test_a_whole_completion_has_its_choices_too(backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    backend.script = play((1, "b", FinishReason.LENGTH), (0, "a", FinishReason.LENGTH))
    answer = (await client.post(TEXT, json={"model": "org/tiny", "prompt": "x", "n": 2})).json()
    assert [(each["index"], each["text"]) for each in answer["choices"]] == [(0, "a"), (1, "b")]


async def test_a_stream_opens_and_ends_each_choice_and_has_one_usage_chunk(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = play(
        (0, "a", None),
        (1, "b", None),
        (0, "A", FinishReason.STOP),
        (1, "B", FinishReason.LENGTH),
        parks=1,
        parked_s=0.5,
    )
    body = chat_body(n=2, stream=True, stream_options={"include_usage": True})
    chunks = chunks_of((await client.post(CHAT, json=body)).text)
    assert [chunk["choices"][0]["index"] for chunk in chunks[:2]] == [0, 1]
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:2]] == [{"role": "assistant", "content": ""}] * 2
    told = [chunk["choices"][0] for chunk in chunks[2:-1]]
    assert [(each["index"], each["delta"].get("content"), each["finish_reason"]) for each in told] == [
        (0, "aA", None),
        (0, None, "stop"),
        (1, "bB", None),
        (1, None, "length"),
    ]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 6
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 4
    assert (chunks[-1]["usage"]["parks"], chunks[-1]["usage"]["parked_seconds"]) == (1, 0.5)


async def test_a_character_split_over_tokens_is_put_together_within_its_choice(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    first, second = "é".encode(), "ü".encode()

    def script(submission: Submission) -> list[TokenEvent]:
        parts = [(0, first[:1]), (1, second[:1]), (0, first[1:]), (1, second[1:])]
        events = [
            TokenEvent(request_id=submission.request_id, choice=choice, tokens=tuple(part)) for choice, part in parts
        ]
        ends = [
            TokenEvent(request_id=submission.request_id, choice=choice, finish=FinishReason.STOP) for choice in (0, 1)
        ]
        return [*events, *ends]

    backend.script = script
    answer = (await client.post(CHAT, json=chat_body(n=2))).json()
    assert [each["message"]["content"] for each in answer["choices"]] == ["é", "ü"]


async def test_a_stop_string_ends_its_own_choice_only(
    app: FastAPI, backend: HandPlayedBackend, chat_body: Body
) -> None:
    call = OpenCall(app, CHAT, chat_body(n=2, stream=True, stop=["END"]))
    await call.next_message()
    await call.next_piece()
    backend.send(choice=0, text="zero END and more")
    piece = await call.next_piece()
    assert b'"index":0,"delta":{"content":"zero "}' in piece
    assert piece.count(b'"finish_reason":"stop"') == 1
    assert backend.cancelled == []  # the other one goes on
    backend.send(choice=0, text="dropped")
    backend.send(choice=1, text="one")
    piece = await call.next_piece()
    assert b'"index":1,"delta":{"content":"one"}' in piece
    assert b"dropped" not in piece
    backend.send(choice=1, finish=FinishReason.LENGTH)
    last = await call.next_piece()
    assert b'"index":1,"delta":{},"logprobs":null,"finish_reason":"length"' in last
    assert last.endswith(b"data: [DONE]\n\n")
    await call.task
    async with app.router.lifespan_context(app):
        pass  # its end waits for cancels under way
    assert backend.cancelled == [backend.submissions[0].request_id]  # choice 0 still ran


async def test_a_family_is_not_cancelled_when_the_engine_has_ended_all_of_it(
    app: FastAPI, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = play((0, "a END", FinishReason.LENGTH), (1, "b", FinishReason.STOP))
    answer = (await client.post(CHAT, json=chat_body(n=2, stop="END"))).json()
    assert [(each["message"]["content"], each["finish_reason"]) for each in answer["choices"]] == [
        ("a ", "stop"),
        ("b", "stop"),
    ]
    async with app.router.lifespan_context(app):
        pass
    assert backend.cancelled == []


async def test_tokens_after_a_stop_string_do_not_count(
    app: FastAPI, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = play((0, "a END", None), (0, "dropped", None), (1, "b", FinishReason.STOP))
    answer = (await client.post(CHAT, json=chat_body(n=2, stop="END"))).json()
    assert answer["usage"]["completion_tokens"] == len("a END") + len("b")
    await backend.cancel_seen.wait()
    assert backend.cancelled == [backend.submissions[0].request_id]


async def test_the_last_stop_string_cancels_the_request(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = play((0, "a END", None), (1, "b END", None))
    answer = (await client.post(CHAT, json=chat_body(n=2, stop="END"))).json()
    assert [each["finish_reason"] for each in answer["choices"]] == ["stop", "stop"]
    await backend.cancel_seen.wait()
    assert backend.cancelled == [backend.submissions[0].request_id]


async def test_the_ending_token_of_each_choice_counts(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("ab", [EOS])
    answer = (await client.post(CHAT, json=chat_body(n=2))).json()
    assert answer["usage"]["completion_tokens"] == 6


async def test_a_notice_is_told_once_for_all_choices_and_after_the_text_before_it(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    def script(submission: Submission) -> list[TokenEvent]:
        name = submission.request_id
        text = [TokenEvent(request_id=name, choice=choice, tokens=tuple(b"x")) for choice in (0, 1)]
        ends = [TokenEvent(request_id=name, choice=choice, finish=FinishReason.STOP) for choice in (0, 1)]
        return [*text, TokenEvent(request_id=name, notice=Notice.PARKED), *ends]

    backend.script = script
    response = await client.post(CHAT, json=chat_body(n=2, stream=True))
    events = response.text.split("\n\n")
    assert [event.startswith(": parked") for event in events].index(True) == 4  # two openings, two deltas
    assert response.text.count(": parked") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_of_one_choice_is_the_requests(
    stream: bool, app: FastAPI, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = play((0, "fine", None), (1, "half", None), (1, "", FinishReason.ERROR), error="the group is lost")
    response = await client.post(CHAT, json=chat_body(n=2, stream=stream))
    assert '"message": "the group is lost"' in response.text or response.json()["error"]["code"] == "request_failed"
    assert response.status_code == (200 if stream else 503)
    assert "[DONE]" not in response.text
    await backend.cancel_seen.wait()
    assert backend.cancelled == [backend.submissions[0].request_id]  # the sibling still ran


# ---- how many tokens each may have. Pages of 16; a pool of 10 of them.


async def ask(backend: HandPlayedBackend, **fields: object) -> httpx.Response:
    app = create_app(backend, served_model(max_model_len=1_000, pool_tokens=160, page_size=16))
    backend.script = says("x")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        body = {"model": "org/tiny", "prompt": "x" * 33, "max_tokens": 1, **fields}
        return await client.post(TEXT, json=body)


@pytest.mark.parametrize(("n", "room"), [(1, 127), (2, 63), (3, 31), (4, 31), (8, 15)])
async def test_choices_share_the_full_pages_of_the_prompt_and_the_rest_of_the_pool(
    n: int, room: int, backend: HandPlayedBackend
) -> None:
    """33 tokens: two full pages are shared, eight are left."""
    assert (await ask(backend, n=n, max_tokens=room)).status_code == 200
    assert backend.submissions[0].stop.max_tokens == room
    response = await ask(backend, n=n, max_tokens=room + 1)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "max_tokens")


async def test_more_choices_than_pages_is_400_and_names_n(backend: HandPlayedBackend) -> None:
    error = (await ask(backend, n=9)).json()["error"]
    assert (error["param"], error["code"]) == ("n", "context_length_exceeded")
    assert error["message"] == (
        "the KV pool of 160 tokens leaves 0 to each of 9 answers beside the prompt of 33; "
        "ask for fewer of them with 'n' or shorten the prompt"
    )


async def test_a_bound_too_long_for_so_many_is_400_with_all_numbers(backend: HandPlayedBackend) -> None:
    error = (await ask(backend, n=2, max_tokens=100)).json()["error"]
    assert error["message"] == (
        "the KV pool of 160 tokens leaves 63 to each of 2 answers beside the prompt of 33, and 100 are asked for; "
        "lower 'max_tokens' or 'n', or shorten the prompt"
    )


async def test_without_a_bound_a_chats_choices_share_the_room(backend: HandPlayedBackend, chat_body: Body) -> None:
    app = create_app(backend, served_model(max_model_len=1_000, pool_tokens=160, page_size=16))
    backend.script = says("x")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        await client.post(CHAT, json=chat_body(n=2))
    submission = backend.submissions[0]
    assert len(submission.prompt_tokens) == 21  # one page shared, nine left: four for each
    assert submission.stop.max_tokens == 5 * 16 - 21
