"""A request body into a checked value: bounded in size, strict in type, and every refusal names its field."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from deploy.errors import BodyTooLarge, InvalidRequest
from deploy.gateway.body_values import require_few_values
from deploy.gateway.fields import CheckedBody
from deploy.gateway.served_model import ServedModel

BodyT = TypeVar("BodyT", bound=CheckedBody)

__all__ = ["ClientDisconnect", "parse_body", "read_body"]


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises `BodyTooLarge` before it holds much more, `ClientDisconnect` when the body breaks off."""
    too_large = BodyTooLarge(
        f"the request body is larger than {max_bytes} bytes; send a smaller one", code="body_too_large"
    )
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and int(declared[:19]) > max_bytes:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


def parse_body(schema: type[BodyT], body: bytes, model: ServedModel | None = None) -> BodyT:
    """Raises `InvalidRequest` about the first thing that is wrong, and `BodyTooLarge` before anything is parsed. With
    `model`, token ids that it cannot hold are refused here already. A megabyte may take a tenth of a second.
    """
    require_few_values(body)
    try:
        return schema.model_validate_json(body, context=model)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        raise _as_invalid_request(detail, schema.bounds) from None


def _as_invalid_request(detail: Any, bounds: Mapping[str, str]) -> InvalidRequest:
    kind, location, context = detail["type"], detail["loc"], detail.get("ctx", {})
    if kind == "json_invalid":
        return InvalidRequest(f"the request body is not valid JSON: {context['error']}", code="invalid_json")
    if kind == "parkade":
        return InvalidRequest(context["text"], param=context["param"])
    if not location:
        return InvalidRequest("the request body must be a JSON object")
    return _field_error(kind, location, detail["msg"], bounds)


def _field_error(kind: str, location: tuple[int | str, ...], message: str, bounds: Mapping[str, str]) -> InvalidRequest:
    field, path = str(location[0]), _path(location)
    if field == "messages" and kind == "too_short":
        return InvalidRequest("'messages' must hold at least 1 message; it is empty", param=path, code="empty_array")
    if field == "messages" and len(location) > 1:
        return InvalidRequest(f"'{path}' {_lowered(message)}", param=path)
    if kind == "missing":
        return InvalidRequest(f"'{path}' is required: {bounds[field]}", param=path)
    return InvalidRequest(f"'{path}' must be {bounds[field]}", param=path)


def _path(location: tuple[int | str, ...]) -> str:
    """("messages", 0, "role") -> "messages[0].role"."""
    path = str(location[0])
    for step in location[1:]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def _lowered(message: str) -> str:
    """pydantic's "Input should be ..." as the end of a sentence that begins with the field."""
    if message == "Field required":
        return "is required"
    return message.replace("Input should", "should", 1)
