"""The two ways to answer: as a stream of server-sent events, or whole. Both end the request when its client leaves."""

import logging
import traceback

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from deploy.errors import ApiError, Internal, api_error_of
from deploy.gateway.frames import KEEP_ALIVE, Frames, parks_header
from deploy.gateway.live_request import ClientGone, LiveRequest, while_connected
from deploy.gateway.relay import ChoiceEnded, Ended, NoticeMark, TextDelta, Update

logger = logging.getLogger(__name__)


def error_response(error: ApiError) -> Response:
    return JSONResponse(error.body, status_code=error.status, headers=dict(error.headers))


def log_failure(where: str, error: BaseException) -> None:
    """The kind and the place of an unexpected error. Not its message: that could hold a client's text."""
    place = "".join(traceback.format_tb(error.__traceback__))
    logger.error("unexpected %s in %s\n%s", type(error).__name__, where, place)


class StreamedAnswer(Response):
    """Headers and opening go out at once; then one body piece for all that is there each time there is something, and a
    comment each time there has been nothing for `keep_alive_s`: the request is queued, held or parked then."""

    media_type = "text/event-stream"

    def __init__(self, live: LiveRequest, frames: Frames, keep_alive_s: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._live = live
        self._frames = frames
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await while_connected(receive, self._stream(send))
        except (ClientGone, OSError):  # a server may also tell it by failing to send
            pass
        finally:
            self._live.close()

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await _send_piece(send, self._frames.opening())
        try:
            async for updates in self._live.updates(self._keep_alive_s):
                await _send_piece(send, b"".join(map(self._frame, updates)) if updates else KEEP_ALIVE)
        except OSError:
            raise
        except Exception as error:
            known = api_error_of(error)
            if isinstance(known, Internal):
                log_failure(f"the stream of {self._live.request_id}", error)
            await _send_piece(send, self._frames.failure(known))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _frame(self, update: Update) -> bytes:
        frames = self._frames
        match update:
            case TextDelta(choice, text):
                return frames.delta(choice, text)
            case NoticeMark(notice):
                return frames.notice(notice)
            case ChoiceEnded(choice, finish_reason):
                return frames.finish(choice, finish_reason)
            case Ended(failure):
                return frames.ending(self._live.usage) if failure is None else frames.failure(failure)


async def whole_answer(live: LiveRequest, frames: Frames, receive: Receive) -> Response:
    """Wait for the end. Raises `ApiError` when the engine gives the request up, `ClientGone` when the client leaves."""
    try:
        choices = await while_connected(receive, _collect(live))
    finally:
        live.close()
    headers = {"X-Parkade-Parks": parks_header(live.usage)}
    return Response(frames.whole(choices, live.usage), media_type="application/json", headers=headers)


async def _collect(live: LiveRequest) -> list[tuple[str, str]]:
    """Text and finish reason of each choice, in index order. Raises `ApiError`."""
    texts: dict[int, list[str]] = {}
    reasons: dict[int, str] = {}
    async for updates in live.updates():
        for update in updates:
            match update:
                case TextDelta(choice, text):
                    texts.setdefault(choice, []).append(text)
                case ChoiceEnded(choice, finish_reason):
                    reasons[choice] = finish_reason
                case Ended(failure) if failure is not None:
                    raise failure
    return [("".join(texts.get(choice, ())), reasons[choice]) for choice in sorted(reasons)]


async def _send_piece(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
