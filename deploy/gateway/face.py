"""What the routes do: check, submit, answer. One instance serves one model on one backend."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from deploy.errors import ApiError, BackendLost, Internal, api_error_of
from deploy.gateway.backend import Backend
from deploy.gateway.chat_request import ChatRequest
from deploy.gateway.completion_request import CompletionRequest
from deploy.gateway.fields import GenerationFields
from deploy.gateway.frames import AnswerHead, ChatFrames, CompletionFrames, Frames
from deploy.gateway.limits import GatewayLimits
from deploy.gateway.live_request import ClientGone, Farewells, LiveRequest
from deploy.gateway.parsing import parse_body, read_body
from deploy.gateway.preparation import (
    build_submission,
    chat_room,
    chat_tokens,
    completion_room,
    completion_tokens,
    max_answer_tokens,
    new_request_id,
    require_model,
)
from deploy.gateway.recent_refusal import RecentRefusal
from deploy.gateway.relay import Relay
from deploy.gateway.responses import StreamedAnswer, error_response, log_failure, whole_answer
from deploy.gateway.served_model import ServedModel
from deploy.text import RenderBudget
from scheduler.admission.errors import AdmissionRefused, QueueFull
from scheduler.messages import Submission

_CLIENT_GONE_STATUS = 499  # nobody reads it; access logs do
T = TypeVar("T")


class Face:
    """Call `close` when done."""

    def __init__(self, backend: Backend, model: ServedModel, limits: GatewayLimits) -> None:
        self._backend = backend
        self._model = model
        self._limits = limits
        self._farewells = Farewells(backend)
        self._recent_refusal = RecentRefusal()
        self._text_threads = ThreadPoolExecutor(limits.num_text_threads, thread_name_prefix="gateway-text")

    async def close(self) -> None:
        await self._farewells.settle()
        self._text_threads.shutdown(wait=False, cancel_futures=True)

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, self._chat, "messages")

    async def completion(self, request: Request) -> Response:
        return await self._answer(request, self._completion, "prompt")

    async def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [self._model_card()]}

    async def model(self, model_id: str) -> Response:
        try:
            require_model(self._model, model_id)
        except ApiError as error:
            return error_response(error)
        return JSONResponse(self._model_card())

    async def health(self) -> Response:
        """200 only if the step loop has answered in time."""
        try:
            async with asyncio.timeout(self._limits.health_s):
                status = await self._backend.status()
        except TimeoutError:
            lost = BackendLost(f"the engine has not answered within {self._limits.health_s:g} s")
            return error_response(api_error_of(lost))
        except BackendLost as error:
            return error_response(api_error_of(error))
        except Exception as error:
            log_failure("GET /health", error)
            return error_response(api_error_of(BackendLost("the backend does not answer")))
        return JSONResponse({"status": "ok", "model": self._model.model_id, **status})

    async def _answer(self, request: Request, work: Callable[[Request], Awaitable[Response]], param: str) -> Response:
        try:
            return await work(request)
        except (ClientGone, ClientDisconnect):
            return Response(status_code=_CLIENT_GONE_STATUS)
        except Exception as error:
            return error_response(self._told(error, request.url.path, param))

    def _told(self, error: Exception, where: str, param: str) -> ApiError:
        told = api_error_of(error, param=param)
        if isinstance(told, Internal):
            log_failure(where, error)
        return told

    async def _chat(self, request: Request) -> Response:
        body = parse_body(ChatRequest, await read_body(request, self._limits.max_body_bytes))
        require_model(self._model, body.model)
        self._recent_refusal.check()
        budget = RenderBudget(max_s=self._limits.render_s)
        tokens = await self._in_thread(lambda: chat_tokens(self._model, body, budget))
        max_tokens = max_answer_tokens(self._model, len(tokens), chat_room(body), "messages")
        submission = self._submission("chatcmpl", body, tokens, max_tokens)
        frames = ChatFrames(self._head(submission), with_usage=body.wants_usage_chunk)
        return await self._run(request, body, submission, frames)

    async def _completion(self, request: Request) -> Response:
        body = parse_body(CompletionRequest, await read_body(request, self._limits.max_body_bytes))
        require_model(self._model, body.model)
        self._recent_refusal.check()
        tokens = await self._in_thread(lambda: completion_tokens(self._model, body))
        max_tokens = max_answer_tokens(self._model, len(tokens), completion_room(body), "prompt")
        submission = self._submission("cmpl", body, tokens, max_tokens)
        frames = CompletionFrames(self._head(submission), with_usage=body.wants_usage_chunk)
        return await self._run(request, body, submission, frames)

    async def _run(self, request: Request, body: GenerationFields, submission: Submission, frames: Frames) -> Response:
        await self._submit(submission)
        relay = Relay(
            num_prompt_tokens=len(submission.prompt_tokens),
            stop_token_ids=submission.stop.stop_token_ids,
            detokenizer=self._model.tokenizer.detokenizer(submission.prompt_tokens),
            stops=body.stop,
        )
        live = LiveRequest(self._backend, self._farewells, submission.request_id, relay)
        if body.stream:
            return StreamedAnswer(live, frames)
        return await whole_answer(live, frames, request.receive)

    async def _submit(self, submission: Submission) -> None:
        """Whatever else than a refusal comes instead of an answer: the request may be in, so it is cancelled."""
        try:
            async with asyncio.timeout(self._limits.submit_s):
                await self._backend.submit(submission)
        except AdmissionRefused as refusal:
            if isinstance(refusal, QueueFull):
                self._recent_refusal.note(refusal)
            raise
        except TimeoutError:
            self._farewells.cancel(submission.request_id)
            raise BackendLost(f"admission has not answered within {self._limits.submit_s:g} s") from None
        except BaseException:
            self._farewells.cancel(submission.request_id)
            raise

    def _submission(self, prefix: str, body: GenerationFields, tokens: list[int], max_tokens: int) -> Submission:
        ids = (new_request_id(prefix), self._backend.gateway_id)
        return build_submission(self._model, body, tokens, max_tokens=max_tokens, ids=ids)

    def _head(self, submission: Submission) -> AnswerHead:
        return AnswerHead(request_id=submission.request_id, model_id=self._model.model_id, created=int(time.time()))

    def _model_card(self) -> dict[str, Any]:
        return {
            "id": self._model.model_id,
            "object": "model",
            "created": self._model.created,
            "owned_by": "parkade",
            "max_model_len": self._model.max_model_len,
            "priority": "higher wins",
        }

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._text_threads, work)
