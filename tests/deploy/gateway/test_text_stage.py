"""Before the queue: what surely cannot fit is not encoded, and no more are tokenized than may wait."""

import asyncio
import threading
from typing import Any

import httpx
import pytest

from deploy.errors import ContextExceeded
from deploy.gateway import GatewayLimits, ServedModel, create_app
from deploy.gateway.chat_request import ChatRequest
from deploy.gateway.completion_request import CompletionRequest
from deploy.gateway.preparation import chat_tokens, completion_tokens
from deploy.gateway.text_stage import TextStage
from deploy.text import RenderBudget, TextTokenizer
from scheduler.admission import QueueFull
from tests.deploy.gateway.fakes import Body, HandPlayedBackend, says

TEXT = "/v1/completions"


def never_encoded(*_: Any, **__: Any) -> list[int]:
    raise AssertionError("it was encoded")


def test_a_text_that_surely_cannot_fit_is_not_encoded(model: ServedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextTokenizer, "encode", never_encoded)
    text = "x" * (199 * len("<|im_start|>") + 1)  # 200 tokens at least: one stands for 12 bytes at most
    with pytest.raises(
        ContextExceeded, match="the prompt has at least 200 tokens and the model's length is 200"
    ) as told:
        completion_tokens(model, CompletionRequest.model_validate({"model": "m", "prompt": text}))
    assert told.value.param == "prompt"
    chat = ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": text}]})
    with pytest.raises(ContextExceeded) as told:
        chat_tokens(model, chat, RenderBudget())
    assert told.value.param == "messages"


def test_a_text_that_just_fits_is_encoded(model: ServedModel) -> None:
    request = CompletionRequest.model_validate({"model": "m", "prompt": "<|im_start|>" * 199})
    assert len(completion_tokens(model, request)) == 199


def test_a_stage_that_is_full_tells_how_long_the_last_one_took() -> None:
    times = iter([0.0, 10.0, 12.5, 13.0])
    stage = TextStage(1, 1, lambda: next(times))
    with stage.place(), pytest.raises(QueueFull) as caught, stage.place():
        raise AssertionError("nobody is let in")
    assert caught.value.retry_after_s == 1  # nobody has been through it yet
    with stage.place(), pytest.raises(QueueFull) as caught, stage.place():
        raise AssertionError("nobody is let in")
    assert (caught.value.waiting, caught.value.limit, caught.value.retry_after_s) == (1, 1, 10)
    stage.close()


async def test_a_burst_is_refused_before_it_is_tokenized(
    backend: HandPlayedBackend, model: ServedModel, chat_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, is_encoding, may_go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    encode, encoded = TextTokenizer.encode, []

    def slow(tokenizer: TextTokenizer, text: str, **more: bool) -> list[int]:
        encoded.append(text)
        loop.call_soon_threadsafe(is_encoding.set)
        assert may_go_on.wait(5)
        return encode(tokenizer, text, **more)

    monkeypatch.setattr(TextTokenizer, "encode", slow)
    backend.script = says("x")
    app = create_app(backend, model, GatewayLimits(max_text_requests=1))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parkade") as client:
        first = asyncio.create_task(client.post(TEXT, json={"model": "org/tiny", "prompt": "first"}))
        await is_encoding.wait()
        refused = await client.post("/v1/chat/completions", json=chat_body())
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert refused.headers["retry-after"] == "1"
        may_go_on.set()
        assert (await first).status_code == 200
        assert encoded == ["first"]
        assert (await client.post(TEXT, json={"model": "org/tiny", "prompt": "next"})).status_code == 200
