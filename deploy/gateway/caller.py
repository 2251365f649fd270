"""Who asks, and under which id: what is known of an HTTP request before it is routed."""

import re
from dataclasses import dataclass

from starlette.types import Scope

from deploy.request_ids import new_request_id

_SCOPE_KEY = "parkade.caller"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
REQUEST_ID_BOUND = "1 to 128 letters, digits, dots, dashes or underscores"


@dataclass(slots=True)
class Caller:
    """`owner` is "" without API keys. `request_id` goes back in the header X-Request-Id, whatever the answer."""

    owner: str
    request_id: str
    chose_id: bool = False

    def name_completion(self, prefix: str) -> str:
        """The id of the completion: the client's own, or else a fresh one that begins with `prefix`."""
        if not self.chose_id:
            self.request_id = new_request_id(prefix)
        return self.request_id


def is_request_id(text: str) -> bool:
    return _REQUEST_ID.fullmatch(text) is not None


def caller_of(scope: Scope) -> Caller:
    """Who the door let in."""
    caller = scope[_SCOPE_KEY]
    assert isinstance(caller, Caller)
    return caller


def set_caller(scope: Scope, caller: Caller) -> None:
    scope[_SCOPE_KEY] = caller
