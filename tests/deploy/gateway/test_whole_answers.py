"""Answers without streaming, and what a request becomes on its way to admission."""

import dataclasses

import httpx
import pytest
from fastapi import FastAPI

from deploy.gateway import SamplingDefaults, create_app
from scheduler.messages import FinishReason
from scheduler.sampling import SamplingParams, StopRules
from tests.deploy.gateway.fakes import EOS, Body, HandPlayedBackend, says, served_model


async def test_a_chat_answer_is_openais_object(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("Hello ", "there", parks=1, parked_s=0.5)
    response = await client.post("/v1/chat/completions", json=chat_body())
    answer = response.json()
    submission = backend.submissions[0]
    assert response.status_code == 200
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "id": submission.request_id,
        "object": "chat.completion",
        "model": "org/tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello there", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": len(submission.prompt_tokens),
            "completion_tokens": 11,
            "total_tokens": len(submission.prompt_tokens) + 11,
            "parks": 1,
            "recomputes": 0,
            "parked_seconds": 0.5,
        },
    }


async def test_a_completion_answer_is_openais_object(backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    backend.script = says(" b", finish=FinishReason.LENGTH)
    response = await client.post("/v1/completions", json={"model": "org/tiny", "prompt": "a", "max_tokens": 2})
    answer = response.json()
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["choices"] == [{"index": 0, "text": " b", "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"]["total_tokens"] == 3


async def test_ids_are_long_and_never_the_same(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    ids = [(await client.post("/v1/chat/completions", json=chat_body())).json()["id"] for _ in range(2)]
    assert ids[0] != ids[1]
    assert all(name.startswith("chatcmpl-") and len(name) == len("chatcmpl-") + 32 for name in ids)


async def test_a_chat_is_rendered_and_takes_all_the_room_there_is(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    await client.post("/v1/chat/completions", json=chat_body(seed=7))
    submission = backend.submissions[0]
    prompt = [257, *b"user\nhi", 258, *b"\n", 257, *b"assistant\n"]
    assert submission.prompt_tokens == tuple(prompt)
    assert submission.gateway_id == "gateway-1"
    assert submission.priority == 0
    assert submission.sampling == SamplingParams(seed=7)
    assert submission.stop == StopRules(max_tokens=200 - len(prompt), stop_token_ids=(EOS,))


async def test_every_field_reaches_admission(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": -1,
        "frequency_penalty": 2,
        "logit_bias": {"7": -100, "3": 1.5},
        "seed": -(2**63),
        "max_tokens": 50,
        "max_completion_tokens": 9,
        "ignore_eos": True,
        "priority": -(2**31),
        "n": 1,
        "user": "someone",
        "metadata": {"any": ["thing"]},
        "some_unknown_field": 1,
        "logprobs": False,
        "tools": [],
        "response_format": {"type": "text"},
    }
    response = await client.post("/v1/chat/completions", json=chat_body(**fields))
    submission = backend.submissions[0]
    assert response.status_code == 200
    assert submission.sampling == SamplingParams(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=-1.0,
        frequency_penalty=2.0,
        logit_bias=((3, 1.5), (7, -100.0)),
        seed=-(2**63),
    )
    assert submission.stop == StopRules(max_tokens=9, ignore_eos=True)
    assert submission.priority == -(2**31)


async def test_nulls_are_as_good_as_absent(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    names = ["temperature", "top_p", "top_k", "stop", "logit_bias", "seed", "max_tokens", "n", "stream", "priority"]
    response = await client.post("/v1/chat/completions", json=chat_body(**dict.fromkeys(names)))
    assert response.status_code == 200
    assert dataclasses.replace(backend.submissions[0].sampling, seed=0) == SamplingParams()


async def test_without_a_seed_each_request_draws_its_own(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    for _ in range(2):
        await client.post("/v1/chat/completions", json=chat_body())
    first, second = (submission.sampling.seed for submission in backend.submissions)
    assert first != second


@pytest.mark.parametrize("off", [-1, 0, 300])
async def test_a_top_k_of_everything_is_off(
    off: int, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    await client.post("/v1/chat/completions", json=chat_body(top_k=off))
    assert backend.submissions[0].sampling.top_k == 0


async def test_a_temperature_too_small_for_single_precision_is_greedy(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    await client.post("/v1/chat/completions", json=chat_body(temperature=1e-30))
    assert backend.submissions[0].sampling.is_greedy


async def test_the_models_own_defaults_hold_where_the_request_is_silent(
    backend: HandPlayedBackend, chat_body: Body
) -> None:
    defaults = SamplingDefaults(temperature=0.6, top_k=20, top_p=0.95)
    app = create_app(backend, dataclasses.replace(served_model(), defaults=defaults))
    backend.script = says("x")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        await client.post("/v1/chat/completions", json=chat_body(top_k=0, seed=1))
    assert backend.submissions[0].sampling == SamplingParams(temperature=0.6, top_p=0.95, seed=1)


async def test_text_parts_join_and_developers_are_systems(
    backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    backend.script = says("x")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "s"}, {"role": "user", "content": parts}]
    await client.post("/v1/chat/completions", json={"model": "org/tiny", "messages": messages})
    prompt = [257, *b"system\ns", 258, *b"\n", 257, *b"user\na\nb", 258, *b"\n", 257, *b"assistant\n"]
    assert backend.submissions[0].prompt_tokens == tuple(prompt)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("ab", b"ab"), (["ab"], b"ab"), ([97, 98], b"ab"), ([[97, 98]], b"ab"), ("<|im_end|>", [EOS])],
)
async def test_a_prompt_is_a_text_or_token_ids(
    prompt: object, tokens: bytes, backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    backend.script = says("x")
    await client.post("/v1/completions", json={"model": "org/tiny", "prompt": prompt})
    assert backend.submissions[0].prompt_tokens == tuple(tokens)
    assert backend.submissions[0].stop.max_tokens == 16


async def test_a_completion_gets_bos_from_the_post_processor_and_a_chat_does_not(
    backend: HandPlayedBackend, chat_body: Body
) -> None:
    app = create_app(backend, served_model(adds_bos=True))
    backend.script = says("x")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        await client.post("/v1/completions", json={"model": "org/tiny", "prompt": "a"})
        await client.post("/v1/chat/completions", json=chat_body())
    assert backend.submissions[0].prompt_tokens == (256, ord("a"))
    assert backend.submissions[1].prompt_tokens[0] == 257


async def test_the_default_answer_is_bounded_by_a_pool_smaller_than_the_model(
    backend: HandPlayedBackend,
) -> None:
    app = create_app(backend, served_model(max_model_len=200, pool_tokens=12))
    backend.script = says("x")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        await client.post("/v1/completions", json={"model": "org/tiny", "prompt": "abc"})
    assert backend.submissions[0].stop.max_tokens == 9


async def test_stop_strings_end_the_answer_and_the_engine_is_told_once(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("one E", "ND two", "three")
    response = await client.post("/v1/chat/completions", json=chat_body(stop=["END", "zzz"]))
    answer = response.json()
    assert answer["choices"][0]["message"]["content"] == "one "
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == len("one END")
    await backend.cancel_seen.wait()
    assert backend.cancelled == [backend.submissions[0].request_id]


async def test_a_held_back_beginning_is_told_when_the_answer_ends(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("one EN", finish=FinishReason.LENGTH)
    answer = (await client.post("/v1/chat/completions", json=chat_body(stop="END"))).json()
    assert answer["choices"][0]["message"]["content"] == "one EN"
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_the_ending_token_counts_and_has_no_text(
    backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("ab", [EOS])
    answer = (await client.post("/v1/chat/completions", json=chat_body())).json()
    assert answer["choices"][0]["message"]["content"] == "ab"
    assert answer["usage"]["completion_tokens"] == 3


async def test_a_finished_request_is_never_cancelled(
    app: FastAPI, backend: HandPlayedBackend, client: httpx.AsyncClient, chat_body: Body
) -> None:
    backend.script = says("x")
    await client.post("/v1/chat/completions", json=chat_body())
    await client.post("/v1/chat/completions", json=chat_body(stream=True))
    async with app.router.lifespan_context(app):
        pass  # its end waits for cancels under way
    assert backend.cancelled == []
