"""The door before all routes: every answer carries X-Request-Id, and where there are API keys only their holders pass.

Plain ASGI. It guards whatever is asked over HTTP, also what does not exist.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deploy.api_keys import ApiKeys
from deploy.errors import ApiError, InvalidRequest, Unauthorized
from deploy.gateway.caller import REQUEST_ID_BOUND, Caller, is_request_id, set_caller
from deploy.gateway.responses import error_response
from deploy.request_ids import HEADER, new_request_id

_REALM = 'Bearer realm="parkade"'


class Door:
    """Without `keys` everybody passes, as owner "". `tells_id` is off where a layer before this one tells the id."""

    def __init__(self, app: ASGIApp, keys: ApiKeys | None, tells_id: bool) -> None:
        self._app = app
        self._keys = keys
        self._tells_id = tells_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = Caller(owner="", request_id=new_request_id("req"))
        set_caller(scope, caller)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start" and self._tells_id:
                MutableHeaders(scope=message)[HEADER] = caller.request_id
            await send(message)

        try:
            self._let_in(Headers(scope=scope), caller)
        except ApiError as error:
            await error_response(error)(scope, receive, send_with_id)
            return
        await self._app(scope, receive, send_with_id)

    def _let_in(self, headers: Headers, caller: Caller) -> None:
        """Raises `ApiError`. The id is looked at first, so that a refusal carries it too."""
        given = headers.get(HEADER)
        if given is not None and is_request_id(given):
            caller.request_id, caller.chose_id = given, True
        if self._keys is not None:
            caller.owner = _owner(self._keys, headers.get("authorization"))
        if given is not None and not caller.chose_id:
            raise InvalidRequest(
                f"the header {HEADER} must be {REQUEST_ID_BOUND}; leave it out for one of the server's", param=HEADER
            )


def _owner(keys: ApiKeys, authorization: str | None) -> str:
    """Raises `Unauthorized`."""
    scheme, _, key = (authorization or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthorized(
            "this server asks for an API key; send it in the header Authorization: Bearer KEY", challenge=_REALM
        )
    owner = keys.owner_of(key.strip())
    if owner is None:
        raise Unauthorized(
            "the API key is not one of this server's; ask its operator for one",
            challenge=f'{_REALM}, error="invalid_token"',
        )
    return owner
