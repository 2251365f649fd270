"""The one table from what went wrong to what a client reads: HTTP status and OpenAI's error object.

ApiError
├── InvalidRequest          400  a field is wrong; `param` names it, the message states its bound and the way out
│   └── ContextExceeded     400  prompt and answer cannot fit; code context_length_exceeded, with both numbers
├── Unauthorized            401  with WWW-Authenticate: no API key, or none of ours
├── NotFound                404  unknown model, request, slot or route; `code` says which
├── MethodNotAllowed        405
├── Conflict                409  the id is taken; or the request's `state`, which is told, does not allow it
├── BodyTooLarge            413
├── QueueIsFull             429  with Retry-After: queue, or pool and host RAM, are full
├── Cancelled               499  the request was cancelled, by an order or by its own deadline
├── Internal                500  says nothing about the inside
├── NotSupported            501  known elsewhere, not here
└── Unavailable             503  with Retry-After: starting, draining, or the engine is lost
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from scheduler.admission.errors import (
    CapacityExhausted,
    Draining,
    DuplicateRequest,
    NeverFits,
    NoGroup,
    QueueFull,
    TooManyChoices,
    UnknownRequest,
    WrongState,
)

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


class Unauthorized(ApiError):
    """Never repeats what was shown as a key."""

    status = 401
    type = "invalid_request_error"

    def __init__(self, message: str, *, challenge: str) -> None:
        super().__init__(message, code="invalid_api_key")
        self._challenge = challenge

    @property
    def headers(self) -> Mapping[str, str]:
        return {"WWW-Authenticate": self._challenge}


class NotFound(ApiError):
    status = 404
    type = "invalid_request_error"


class MethodNotAllowed(ApiError):
    status = 405
    type = "invalid_request_error"


class Conflict(ApiError):
    """`state` is the request's: "queued", "resident", "parking", "parked", "restoring", "ending" or "ended"."""

    status = 409
    type = "invalid_request_error"

    def __init__(self, message: str, *, code: str, state: str | None = None) -> None:
        super().__init__(message, code=code)
        self.state = state

    @property
    def body(self) -> dict[str, Any]:
        body = super().body
        return body if self.state is None else {"error": {**body["error"], "state": self.state}}


class BodyTooLarge(ApiError):
    status = 413
    type = "invalid_request_error"


class QueueIsFull(ApiError):
    status = 429
    type = "rate_limit_error"


class Cancelled(ApiError):
    """499 as gRPC's CANCELLED is mapped: of all statuses that fit, the one that SDKs do not try again after."""

    status = 499
    type = "request_cancelled"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or "the request was cancelled on the server", code="request_cancelled")


class NotSupported(ApiError):
    status = 501
    type = "invalid_request_error"


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
        case TooManyChoices():
            return InvalidRequest(str(error), param="n", code="too_many_choices")
        case _:
            return _about_a_request(error) or _not_now(error) or Internal()


def _about_a_request(error: Exception) -> ApiError | None:
    """What is wrong with a request's id, or with an order to it."""
    match error:
        case UnknownRequest():
            return NotFound(str(error), code="request_not_found")
        case DuplicateRequest():
            return Conflict(str(error), code="request_id_in_use")
        case WrongState():
            return Conflict(str(error), code="wrong_state", state=error.state)
        case _:
            return None


def _not_now(error: Exception) -> ApiError | None:
    """What another time may go well."""
    match error:
        case QueueFull():
            return QueueIsFull(str(error), code="queue_full", retry_after_s=error.retry_after_s)
        case CapacityExhausted():
            return QueueIsFull(str(error), code="capacity_exhausted", retry_after_s=error.retry_after_s)
        case Draining():
            return Unavailable(str(error), code="draining", retry_after_s=error.retry_after_s)
        case NoGroup():
            return Unavailable(str(error), code="not_ready", retry_after_s=error.retry_after_s)
        case BackendLost():
            return Unavailable(str(error), code="backend_lost", retry_after_s=_RETRY_S)
        case _:
            return None


def failed_request(message: str) -> ApiError:
    """A request that the engine gave up after it was accepted; `message` is the engine's, written for clients."""
    return Unavailable(message, code="request_failed", retry_after_s=_RETRY_S)
