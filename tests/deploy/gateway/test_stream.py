"""The bytes of a stream, one by one."""

import json

import httpx

from scheduler.messages import FinishReason, Notice, Submission, TokenEvent
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, says


def chunk(request_id: str, created: int, choices: str, *, kind: str = "chat.completion.chunk", usage: str = "") -> str:
    head = f'{{"id":"{request_id}","object":"{kind}","created":{created},"model":"org/tiny","choices":['
    return f"data: {head}{choices}]{usage}}}\n\n"


def delta(delta: str, finish: str = "null") -> str:
    return f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}'


async def test_a_chat_stream_is_role_deltas_finish_done(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says('Hé "', "\n😀")
    response = await client.post("/v1/chat/completions", json=chat_body(stream=True))
    request_id = backend.submissions[0].request_id
    created = json.loads(response.text.split("\n\n")[0][6:])["created"]
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.text == (
        chunk(request_id, created, delta('{"role":"assistant","content":""}'))
        + chunk(request_id, created, delta('{"content":"Hé \\"\\n😀"}'))
        + chunk(request_id, created, delta("{}", '"stop"'))
        + "data: [DONE]\n\n"
    )


async def test_a_completion_stream_has_no_opening_chunk(backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    backend.script = says("ab", finish=FinishReason.LENGTH)
    body = {"model": "org/tiny", "prompt": "x", "stream": True}
    response = await client.post("/v1/completions", json=body)
    request_id = backend.submissions[0].request_id
    created = json.loads(response.text.split("\n\n")[0][6:])["created"]
    assert response.text == (
        chunk(
            request_id,
            created,
            '{"index":0,"text":"ab","logprobs":null,"finish_reason":null}',
            kind="text_completion",
        )
        + chunk(
            request_id,
            created,
            '{"index":0,"text":"","logprobs":null,"finish_reason":"length"}',
            kind="text_completion",
        )
        + "data: [DONE]\n\n"
    )


async def test_include_usage_adds_null_to_every_chunk_and_a_last_one_without_choices(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("abc", finish=FinishReason.LENGTH, parks=2, parked_s=1.23456)
    body = chat_body(stream=True, stream_options={"include_usage": True})
    response = await client.post("/v1/chat/completions", json=body)
    request_id = backend.submissions[0].request_id
    num_prompt = len(backend.submissions[0].prompt_tokens)
    created = json.loads(response.text.split("\n\n")[0][6:])["created"]
    usage = (
        f',"usage":{{"prompt_tokens":{num_prompt},"completion_tokens":3,"total_tokens":{num_prompt + 3},'
        '"parks":2,"recomputes":0,"parked_seconds":1.235}'
    )
    assert response.text == (
        chunk(request_id, created, delta('{"role":"assistant","content":""}'), usage=',"usage":null')
        + chunk(request_id, created, delta('{"content":"abc"}'), usage=',"usage":null')
        + chunk(request_id, created, delta("{}", '"length"'), usage=',"usage":null')
        + chunk(request_id, created, "", usage=usage)
        + "data: [DONE]\n\n"
    )


async def test_parks_are_told_as_comments_between_the_deltas(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    def play(submission: Submission) -> list[TokenEvent]:
        request_id = submission.request_id
        return [
            TokenEvent(request_id=request_id, tokens=tuple(b"a")),
            TokenEvent(request_id=request_id, notice=Notice.PARKED),
            TokenEvent(request_id=request_id, notice=Notice.RESUMED),
            TokenEvent(request_id=request_id, tokens=tuple(b"b"), finish=FinishReason.STOP, parks=1),
        ]

    backend.script = play
    response = await client.post("/v1/chat/completions", json=chat_body(stream=True))
    events = response.text.split("\n\n")
    assert [event if event.startswith(":") else event[:5] for event in events] == [
        "data:",
        "data:",
        ": parked",
        ": resumed",
        "data:",
        "data:",
        "data:",
        "",
    ]
