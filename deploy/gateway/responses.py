"""The two ways to answer: as a stream of server-sent events, or whole. Both end the request when its client leaves."""

import logging
import traceback

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from deploy.errors import ApiError, Internal, api_error_of, failed_request
from deploy.gateway.frames import Frames
from deploy.gateway.live_request import ClientGone, LiveRequest, while_connected
from deploy.gateway.relay import Ended, NoticeMark, TextDelta, Update

logger = logging.getLogger(__name__)


def error_response(error: ApiError) -> Response:
    return JSONResponse(error.body, status_code=error.status, headers=dict(error.headers))


def log_failure(where: str, error: BaseException) -> None:
    """The kind and the place of an unexpected error. Not its message: that could hold a client's text."""
    place = "".join(traceback.format_tb(error.__traceback__))
    logger.error("unexpected %s in %s\n%s", type(error).__name__, where, place)


class StreamedAnswer(Response):
    """Headers and opening go out at once; then one body piece for all that is there each time there is something."""

    media_type = "text/event-stream"

    def __init__(self, live: LiveRequest, frames: Frames) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._live = live
        self._frames = frames

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
            async for updates in self._live.updates():
                await _send_piece(send, self._frame(updates))
        except OSError:
            raise
        except Exception as error:
            known = api_error_of(error)
            if isinstance(known, Internal):
                log_failure(f"the stream of {self._live.request_id}", error)
            await _send_piece(send, self._frames.failure(known))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _frame(self, updates: list[Update]) -> bytes:
        frames = self._frames
        parts: list[bytes] = []
        for update in updates:
            if isinstance(update, TextDelta):
                parts.append(frames.delta(update.text))
            elif isinstance(update, NoticeMark):
                parts.append(frames.notice(update.notice))
            elif update.finish_reason is None:
                parts.append(frames.failure(failed_request(str(update.error))))
            else:
                parts.append(frames.ending(update.finish_reason, self._live.usage))
        return b"".join(parts)


async def whole_answer(live: LiveRequest, frames: Frames, receive: Receive) -> Response:
    """Wait for the end. Raises `ApiError` when the engine gives the request up, `ClientGone` when the client leaves."""
    try:
        text, end = await while_connected(receive, _collect(live))
    finally:
        live.close()
    if end.finish_reason is None:
        raise failed_request(str(end.error))
    return Response(frames.whole(text, end.finish_reason, live.usage), media_type="application/json")


async def _collect(live: LiveRequest) -> tuple[str, Ended]:
    texts: list[str] = []
    end: Ended | None = None
    async for updates in live.updates():
        for update in updates:
            if isinstance(update, TextDelta):
                texts.append(update.text)
            elif isinstance(update, Ended):
                end = update
    assert end is not None, "updates end with Ended"
    return "".join(texts), end


async def _send_piece(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
