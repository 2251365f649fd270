"""What the routes of completions and models do: check, submit, answer. One instance serves one model on one backend."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from deploy.errors import ApiError, BackendLost, api_error_of
from deploy.gateway.answer_room import AnswerRoom, chat_room, completion_room, max_answer_tokens
from deploy.gateway.answering import answer
from deploy.gateway.backend import Backend
from deploy.gateway.caller import Caller, caller_of
from deploy.gateway.chat_request import ChatRequest
from deploy.gateway.choice_relay import ChoiceRelay
from deploy.gateway.completion_request import CompletionRequest
from deploy.gateway.farewells import Farewells
from deploy.gateway.fields import GenerationFields
from deploy.gateway.frames import AnswerHead, ChatFrames, CompletionFrames, Frames
from deploy.gateway.limits import GatewayLimits
from deploy.gateway.live_request import LiveRequest
from deploy.gateway.parsing import parse_body, read_body
from deploy.gateway.preparation import (
    SubmissionIds,
    build_submission,
    chat_tokens,
    completion_tokens,
    require_model,
)
from deploy.gateway.relay import Relay
from deploy.gateway.responses import StreamedAnswer, error_response, log_failure, whole_answer
from deploy.gateway.served_model import ServedModel
from deploy.gateway.text_stage import TextStage
from deploy.text import RenderBudget
from scheduler.messages import Submission

BodyT = TypeVar("BodyT", bound=GenerationFields)

# Parsed in less than a millisecond, whatever it holds.
_SMALL_BODY_BYTES = 32 * 2**10


class FirstTokenMeter(Protocol):
    """Takes the time from a request's arrival to its first token, in seconds."""

    def first_token(self, priority: int, seconds: float) -> None: ...


class NoMeter:
    """For who does not measure."""

    def first_token(self, priority: int, seconds: float) -> None:
        """Nothing."""


class Face:
    """Call `close` when done."""

    def __init__(
        self,
        backend: Backend,
        model: ServedModel,
        limits: GatewayLimits,
        meter: FirstTokenMeter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._model = model
        self._limits = limits
        self._meter = meter
        self._now = now
        self._farewells = Farewells(backend)
        self._text = TextStage(limits.num_text_threads, limits.max_text_requests)

    async def close(self) -> None:
        await self._farewells.settle()
        self._text.close()

    async def chat(self, request: Request) -> Response:
        return await answer(self._chat(request), request.url.path, "messages")

    async def completion(self, request: Request) -> Response:
        return await answer(self._completion(request), request.url.path, "prompt")

    async def models(self) -> dict[str, Any]:
        """The one served model, in a list."""
        return {"object": "list", "data": [self._model_card()]}

    async def model(self, model_id: str) -> Response:
        """The served model, with its length."""
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

    async def _chat(self, request: Request) -> Response:
        arrived_at, caller = self._now(), caller_of(request.scope)
        caller.name_completion("chatcmpl")
        budget = RenderBudget(max_s=self._limits.render_s)
        raw = await read_body(request, self._limits.max_body_bytes)
        with self._text.place():
            body = await self._parsed(ChatRequest, raw)
            await self._let_in(body)
            tokens = await self._text.run(lambda: chat_tokens(self._model, body, budget))
        submission = self._submission(caller, body, tokens, chat_room(body))
        frames = ChatFrames(self._head(submission), num_choices=submission.n, with_usage=body.wants_usage_chunk)
        return await self._run(request, body, submission, frames, arrived_at)

    async def _completion(self, request: Request) -> Response:
        arrived_at, caller = self._now(), caller_of(request.scope)
        caller.name_completion("cmpl")
        raw = await read_body(request, self._limits.max_body_bytes)
        with self._text.place():
            body = await self._parsed(CompletionRequest, raw)
            await self._let_in(body)
            tokens = await self._text.run(lambda: completion_tokens(self._model, body))
        submission = self._submission(caller, body, tokens, completion_room(body))
        frames = CompletionFrames(self._head(submission), num_choices=submission.n, with_usage=body.wants_usage_chunk)
        return await self._run(request, body, submission, frames, arrived_at)

    async def _parsed(self, schema: type[BodyT], body: bytes) -> BodyT:
        """A large body is parsed beside the event loop, so that streams go on meanwhile."""
        if len(body) <= _SMALL_BODY_BYTES:
            return parse_body(schema, body, self._model)
        return await self._text.run(lambda: parse_body(schema, body, self._model))

    async def _let_in(self, body: GenerationFields) -> None:
        """Before template and tokenizer: what would be refused anyway shall cost nothing."""
        require_model(self._model, body.model)
        try:
            async with asyncio.timeout(self._limits.submit_s):
                await self._backend.check_room()
        except TimeoutError:
            raise BackendLost(f"admission has not answered within {self._limits.submit_s:g} s") from None

    async def _run(
        self, request: Request, body: GenerationFields, submission: Submission, frames: Frames, arrived_at: float
    ) -> Response:
        choices = [self._choice_relay(submission, body) for _ in range(submission.n)]
        relay = Relay(num_prompt_tokens=len(submission.prompt_tokens), choices=choices)
        await self._farewells.submit(submission, self._limits.submit_s)
        live = LiveRequest(
            self._backend,
            self._farewells,
            submission.request_id,
            relay,
            lambda: self._meter.first_token(submission.priority, self._now() - arrived_at),
        )
        if body.stream:
            return StreamedAnswer(live, frames, self._limits.keep_alive_s)
        return await whole_answer(live, frames, request.receive)

    def _choice_relay(self, submission: Submission, body: GenerationFields) -> ChoiceRelay:
        return ChoiceRelay(
            stop_token_ids=submission.stop.stop_token_ids,
            detokenizer=self._model.tokenizer.detokenizer(submission.prompt_tokens),
            stops=body.stop,
        )

    def _submission(self, caller: Caller, body: GenerationFields, tokens: list[int], room: AnswerRoom) -> Submission:
        max_tokens = max_answer_tokens(self._model, len(tokens), room)
        ids = SubmissionIds(request_id=caller.request_id, gateway_id=self._backend.gateway_id, owner=caller.owner)
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
