"""Work for a route, and whatever it raises as the client's error."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar, cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from deploy.errors import Internal, api_error_of
from deploy.gateway.live_request import ClientGone
from deploy.gateway.responses import error_response, log_failure

_CLIENT_GONE_STATUS = 499  # nobody reads it; access logs do
RouteT = TypeVar("RouteT", bound=Callable[..., Coroutine[Any, Any, Response]])


async def answer(work: Awaitable[Response], where: str, param: str | None = None) -> Response:
    """`where` names the route in the log, `param` the field that holds the prompt."""
    try:
        return await work
    except (ClientGone, ClientDisconnect):
        return Response(status_code=_CLIENT_GONE_STATUS)
    except Exception as error:
        known = api_error_of(error, param=param)
        if isinstance(known, Internal):
            log_failure(where, error)
        return error_response(known)


def told(work: RouteT) -> RouteT:
    """For a route's method: whatever it raises is told to the client in our shape."""

    @wraps(work)
    async def route(*args: Any, **kwargs: Any) -> Response:
        # The name of the method, not the path: what stands in the log is no client's text.
        return await answer(work(*args, **kwargs), work.__name__)

    return cast(RouteT, route)
