"""The one table from what went wrong to what a client reads: HTTP status and OpenAI's error object.

ApiError
├── InvalidRequest          400  a field is wrong; `param` names it, the message states its bound and the way out
│   └── ContextExceeded     400  prompt and answer cannot fit; code context_length_exceeded, with both numbers
├── NotFound                404  unknown model (code model_not_found) or route
├── MethodNotAllowed        405
├── BodyTooLarge            413
├── QueueIsFull             429  with Retry-After
├── Internal                500  says nothing about the inside
└── Unavailable             503  with Retry-After: starting, draining, or the engine is lost
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from scheduler.admission.errors import NeverFits, NoGroup, QueueFull

_RETRY_S = 1


class BackendLost(RuntimeError):
    """Admission or an engine cannot be reached. The message may be shown to a client."""


class ApiError(Exception):
    """Something a client is told. `param` is the path of the field at fault ("messages[0].role"), `code` a word."""

    status = 500
    type = "server_error"

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def to_json(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def headers(self) -> Mapping[str, str]:
        """Retry-After in whole seconds, at least 1: SDKs do not wait for less."""
        return {} if self.retry_after_s is None else {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))}


class InvalidRequest(ApiError):
    status = 400
    type = "invalid_request_error"


class ContextExceeded(InvalidRequest):
    """More tokens than the model's length or the KV pool can ever hold."""

    def __init__(self, message: str, *, param: str | None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class NotFound(ApiError):
    status = 404
    type = "invalid_request_error"


class MethodNotAllowed(ApiError):
    status = 405
    type = "invalid_request_error"


class BodyTooLarge(ApiError):
    status = 413
    type = "invalid_request_error"


class QueueIsFull(ApiError):
    status = 429
    type = "rate_limit_error"


class Unavailable(ApiError):
    status = 503
    type = "service_unavailable"


class Internal(ApiError):
    status = 500
    type = "server_error"

    def __init__(self) -> None:
        super().__init__("The server failed on this request. It is logged there; please try again.", code="internal")


def api_error_of(error: Exception, *, param: str | None = None) -> ApiError:
    """The table. `param` is the field that holds the prompt, for refusals about its length."""
    match error:
        case ApiError():
            return error
        case NeverFits():
            return ContextExceeded(str(error), param=param)
        case QueueFull():
            return QueueIsFull(str(error), code="queue_full", retry_after_s=error.retry_after_s)
        case NoGroup():
            return Unavailable(str(error), code="not_ready", retry_after_s=error.retry_after_s)
        case BackendLost():
            return Unavailable(str(error), code="backend_lost", retry_after_s=_RETRY_S)
        case _:
            return Internal()


def failed_request(message: str) -> ApiError:
    """A request that the engine gave up after it was accepted; `message` is the engine's, written for clients."""
    return Unavailable(message, code="request_failed", retry_after_s=_RETRY_S)
